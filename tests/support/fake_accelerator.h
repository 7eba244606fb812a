// A small accelerator in CPU memory, for testing without a GPU what is done with streams, events and pinned memory.
//
//   FakeAccelerator& fake = FakeAccelerator::install();   // on PrivateUse1, to the end of the process
//   at::Tensor x = constant({4, 4}).to(fake.device());
//   …
//   EXPECT_EQ(fake.take_errors(), std::vector<std::string>());
//
// Ops run on the CPU, one after the other, as work of the current stream. Copies with non_blocking=true between it and
// pinned memory are queued on the current stream and run late (fake_streams.h); every access is checked for order, and
// freed memory is NaNs at once (fake_memory.h). There are kFakeStreams streams; one device; no generator of its own:
// random ops draw from the CPU's.
//
// Threads: any.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/fake_memory.h"
#include "tests/support/fake_streams.h"

namespace ac2::test {

class FakeAccelerator {
 public:
  // Registers it with the first call, which must come before the process's first backward: the engine has a thread for
  // each device that it knows by then. The first call also says whether the allocator tells statistics, as a
  // c10::DeviceAllocator does, which LibTorch has from 2.9 on.
  static FakeAccelerator& install(bool tells_statistics = false);
  static bool can_tell_statistics();

  c10::Device device() const { return c10::Device(c10::DeviceType::PrivateUse1, 0); }
  c10::Stream stream(int id) const { return c10::Stream(c10::Stream::UNSAFE, device(), id); }

  // Runs all that is queued, forgets errors and peaks; from here on, events that are asked make progress as the seed
  // says; 0: none.
  void restart(uint64_t seed = 0);
  // Runs all that is queued, and lets the host know: as a synchronisation, but not counted.
  void finish();

  // Copies from and to pinned memory take so long until restart(), which sets 0; each op takes a millisecond.
  void copies_take(double milliseconds_per_byte);

  // Accesses that nothing ordered, since the last call.
  std::vector<std::string> take_errors();
  // As from a program that has waited for everything.
  void host_reads(const void* data);

  // Asked for and not yet free again.
  int64_t device_bytes();
  int64_t peak_device_bytes();       // since reset_peaks()
  int64_t allocated_device_bytes();  // by all allocations so far
  int64_t pinned_bytes();
  int64_t peak_pinned_bytes();
  void reset_peaks();
  // Pinned memory beyond that is a c10::OutOfMemoryError.
  void limit_pinned(int64_t bytes);
  // The allocation of device memory after `count` more is one; those after it succeed again. Negative: none.
  void fail_after(int64_t count);
  // After `count` more allocations there is no more device memory than is in use then. Negative: there is.
  void last_allocation_after(int64_t count);
  // Device memory beyond that is one too.
  void limit_device(int64_t bytes);
  // As CUDA's allocator asks its callbacks: called where there is no memory, with the lock held, until it returns false
  // or there is some. Null: nobody is asked.
  using FreeMemory = std::function<bool(int64_t bytes)>;
  void set_free_memory(FreeMemory free_memory);
  // Decides which allocations of device memory succeed, with the lock held. It is told of blocks that were allocated
  // before it, and has to ignore them.
  class Arena {
   public:
    virtual ~Arena() = default;
    virtual bool take(const void* data, int64_t bytes) = 0;
    virtual void give_back(const void* data) = 0;
  };
  // Null: none.
  void set_arena(Arena* arena);
  int64_t refused_allocations();  // since restart(), each try that failed
  int64_t device_allocations();   // so far
  // Whether it says that it has any; it has at first. Before anybody asks.
  void has_pinned_memory(bool has);
  int64_t pending_copies();
  int64_t live_events();
  // Of a whole device, of a stream, and by copies that block the host.
  int64_t synchronisations();

  // The state behind it, for its own files.
  struct State {
    std::recursive_mutex mutex;
    FakeStreams streams;
    FakeMemory memory{streams};
    int64_t live_events = 0;
    int64_t synchronisations = 0;
    int next_stream = 0;
    bool has_pinned_memory = true;
    FreeMemory free_memory;
    Arena* arena = nullptr;
    int64_t refused_allocations = 0;
    double milliseconds_per_byte = 0;
  };
  State& state() { return state_; }
  // Of this thread.
  static int& current_stream();

 private:
  FakeAccelerator() = default;
  void register_all(bool tells_statistics);

  State state_;
};

// fake_kernels.cc
void register_fake_kernels();
// fake_network_kernels.cc
void register_fake_network_kernels();

}  // namespace ac2::test
