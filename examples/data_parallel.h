// Data-parallel training on LibTorch's own engine: each process of a job computes the gradients of its own batch, and
// c10d::Reducer averages them, bucket by bucket, while backward still runs.
//
//   DataParallel parallel(job.connect(), model->parameters());      // rank 0's parameters go to all
//   for (…) {
//     parallel.before_forward();
//     at::Tensor loss = …;
//     parallel.before_backward();
//     loss.backward();                                              // the gradients are the means over all ranks
//     optimizer.step();
//   }
//
// Regions need to know nothing of it: the reducer's collectives run in backward, outside all regions, once each.
// All processes must make the same calls in the same order. Threads: one.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <memory>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

namespace c10d {
class Reducer;
}

namespace gpt {

// The tensors that a process has given to all-reduces since the start.
struct Reduced {
  int64_t calls = 0;
  int64_t bytes = 0;
  bool operator==(const Reduced&) const = default;
};

class DataParallel {
 public:
  // The parameters lie on one device, for whose tensors the group has a backend.
  DataParallel(c10::intrusive_ptr<c10d::ProcessGroup> group, std::vector<at::Tensor> parameters);
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  void before_forward();
  void before_backward();
  // The mean of the numbers that the ranks have; exchanged on the parameters' device.
  float mean(float value);

  const Reduced& reduced() const { return *reduced_; }

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  c10::Device device_;
  std::shared_ptr<Reduced> reduced_;
  std::unique_ptr<c10d::Reducer> reducer_;
};

}  // namespace gpt
