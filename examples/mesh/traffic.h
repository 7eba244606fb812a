// The traffic of a process with others: how many collectives of each kind, and how many bytes they were given.
//
// Threads: one at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace gpt {

struct Exchanged {
  int64_t calls = 0;
  int64_t bytes = 0;

  void add(const at::Tensor& tensor) {
    ++calls;
    bytes += static_cast<int64_t>(tensor.nbytes());
  }
  Exchanged& operator+=(const Exchanged& other) {
    calls += other.calls;
    bytes += other.bytes;
    return *this;
  }
  Exchanged operator-(const Exchanged& other) const { return {calls - other.calls, bytes - other.bytes}; }
  bool operator==(const Exchanged&) const = default;
};

// Bytes are those of the whole tensor: of what an all-reduce and a reduce-scatter take, and of what an all-gather
// gives.
struct Traffic {
  Exchanged all_reduce, all_gather, reduce_scatter, sent, received;

  Traffic& operator+=(const Traffic& other) {
    all_reduce += other.all_reduce;
    all_gather += other.all_gather;
    reduce_scatter += other.reduce_scatter;
    sent += other.sent;
    received += other.received;
    return *this;
  }
  Traffic operator-(const Traffic& other) const {
    return {all_reduce - other.all_reduce, all_gather - other.all_gather, reduce_scatter - other.reduce_scatter,
            sent - other.sent, received - other.received};
  }
  int64_t calls() const { return all_reduce.calls + all_gather.calls + reduce_scatter.calls + sent.calls; }
  // The bytes that each process of a group of `size` sends if its collectives go round a ring.
  int64_t bytes_by_ring(int64_t size) const {
    return (2 * all_reduce.bytes + all_gather.bytes + reduce_scatter.bytes) / size * (size - 1) + sent.bytes;
  }
  bool operator==(const Traffic&) const = default;
};

}  // namespace gpt
