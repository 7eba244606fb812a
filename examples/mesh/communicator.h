// The collectives of one group of processes, which run by c10d, or are only counted.
//
//   Communicator real("tensor", job.store(), {0, 1}, job.rank);    // on the CPU, by gloo
//   Communicator planned("tensor", /*size=*/8, /*rank=*/0);        // for meta tensors: no process has to be there
//   at::Tensor sum = group.all_reduce(x);
//
// Both call the same operators, those of _c10d_functional, so that a region records the same ops. For meta tensors
// these have kernels here that count. A group of one process calls nothing.
//
// Threads: one. All processes of a group must make the same calls in the same order.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "examples/mesh/traffic.h"

namespace gpt {

class Communicator {
 public:
  // Only counts. `axis` names the group for people.
  Communicator(const std::string& axis, int64_t size, int64_t rank);
  // Exchanges bytes by gloo with the processes `ranks` of a job, of which `self` is this one. Waits for them.
  Communicator(const std::string& axis, const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int64_t>& ranks,
               int64_t self);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int64_t size() const { return size_; }
  int64_t rank() const { return rank_; }
  const Traffic& traffic() const { return *traffic_; }

  // By `op`: "sum" or "max".
  at::Tensor all_reduce(const at::Tensor& mine, const std::string& op = "sum");
  // Along the first dimension. The results are dense.
  at::Tensor all_gather(const at::Tensor& mine);
  at::Tensor reduce_scatter(const at::Tensor& all);

  // To the process before this one, or after it. The tensor is kept until the next call, or flush().
  enum class Neighbour { kBefore, kAfter };
  void send(const at::Tensor& tensor, Neighbour to);
  at::Tensor receive(at::IntArrayRef sizes, const at::TensorOptions& options, Neighbour from);
  void flush();

 private:
  struct Sending {
    std::vector<at::Tensor> tensors;
    c10::intrusive_ptr<c10d::Work> work;
  };
  int peer(Neighbour neighbour) const { return static_cast<int>(rank_) + (neighbour == Neighbour::kAfter ? 1 : -1); }
  void finish(Sending& sending);

  int64_t size_, rank_;
  std::string name_;  // by which operators find the group
  std::shared_ptr<Traffic> traffic_ = std::make_shared<Traffic>();
  c10::intrusive_ptr<c10d::ProcessGroup> group_;  // null: counts only
  Sending before_, after_;
};

}  // namespace gpt
