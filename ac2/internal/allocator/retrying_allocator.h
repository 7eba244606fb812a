// A CPU allocator that stands in front of LibTorch's: where memory runs out, values are dropped and the allocation is
// tried again.
//
//   RetryingAllocator::put_in_front();    // as often as one likes
//
// A block comes from the allocator behind and is freed by its deleter: nothing is wrapped or counted, unless this is
// said below. An allocation costs a virtual call and, from 64 KiB on, an atomic subtraction.
//
// Linux hands out more than there is. So before an allocation of 64 KiB or more the machine's memory is asked
// (machine_memory.h), and too little is met as a failure is, before the allocation is made. The room that was found is
// remembered. The machine is asked again when a quarter of that room has been allocated since, or an eighth of the
// reserve if that is more. Smaller allocations are met when they fail.
//
// With the first shortage glibc is told to map each block of 128 KiB or more, and to give it back when it is freed.
// Until then it keeps in its heap what was mapped and freed before, and what is dropped in pieces would not serve a
// large tensor. Where the machine limits resident bytes, the heap is given back after values were dropped, and the
// machine is asked again: what lies in the heap stays resident.
//
// From then on large blocks are also kept when they are freed, for the next request of their size (kept_blocks.h), if
// the allocator behind is LibTorch's own. Kept blocks are given back before any value is dropped.
//
// Once somebody bounds what is allocated (counted_memory.h), the front that stands before all others counts, and its
// blocks are freed by a function of ours.
//
// Guaranteed: where there is no shortage, or nothing to drop, an allocation gives what it gives without the front, with
// one exception. Where the machine has no swap left and less memory than is asked for, the error that LibTorch raises
// when an allocation fails (c10::OutOfMemoryError here) takes the place of the end of the process.
//
// Threads: any. Other threads may allocate while put_in_front() changes the allocator. c10::SetAllocator takes no lock,
// and LibTorch has the allocator in one pointer: a thread that reads it meanwhile gets one of the two, both of which
// live as long as the process, and a block is freed by the deleter that it came with.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "ac2/internal/allocator/machine_memory.h"

namespace ac2::internal {

class RetryingAllocator final : public c10::Allocator {
 public:
  explicit RetryingAllocator(c10::Allocator& behind) : behind_(behind) {}

  // LibTorch's CPU allocator is one of these from now on, unless it is already. Another one is made if somebody has put
  // an allocator of theirs in front since; the process keeps them all.
  static void put_in_front();
  // All fronts ask this gauge from now on. For tests; null for the machine.
  static void set_gauge(std::shared_ptr<const MemoryGauge> gauge);

  c10::DataPtr allocate(size_t bytes) override;
  bool is_simple_data_ptr(const c10::DataPtr& data) const override { return behind().is_simple_data_ptr(data); }
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* dest, const void* src, std::size_t count) const override {
    behind().copy_data(dest, src, count);
  }
  // The deleter of blocks that are not counted.
  c10::DeleterFnPtr uncounted_deleter() const;

 private:
  // For a thread that LibTorch's plain pointer has led here while put_in_front() ran.
  c10::Allocator& behind() const;
  c10::DataPtr allocate_uncounted(size_t bytes);
  c10::DataPtr allocate_behind(size_t bytes);
  // Blocks of another allocator than LibTorch's are its own to keep.
  bool is_before_libtorchs() const;
  // Of several fronts only one counts.
  bool counts() const;
  bool has_counted() const;

  c10::Allocator& behind_;
};

}  // namespace ac2::internal
