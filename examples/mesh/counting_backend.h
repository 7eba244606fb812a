// A backend of a process group that counts what its process exchanges, and leaves the exchange to another backend.
//
//   auto traffic = std::make_shared<Traffic>();
//   group->setBackend(c10::DeviceType::CPU, type, c10::make_intrusive<CountingBackend>(gloo, traffic));
//
// It counts each collective, whoever calls it: the model, autograd, or a region that repeats one.
//
// When a program has waited for a collective, the other backend has let go of the collective's tensors. Gloo's threads
// alone let go of them at a time of their own, so that the bytes of a program's tensors would depend on that time.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

#include "examples/mesh/traffic.h"

namespace gpt {

class CountingBackend final : public c10d::Backend {
 public:
  using Inner = c10::intrusive_ptr<c10d::Backend>;
  using Work = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;

  CountingBackend(Inner inner, std::shared_ptr<Traffic> traffic)
      : Backend(inner->getRank(), inner->getSize()), inner_(std::move(inner)), traffic_(std::move(traffic)) {}

  // Of the type std::string here, and not of a reference, in all versions of LibTorch.
  const std::string getBackendName() const override { return inner_->getBackendName(); }  // NOLINT

  Work allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  Work _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  Work allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                       const c10d::AllgatherOptions& options) override;
  Work _reduce_scatter_base(at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) override;
  Work reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                       const c10d::ReduceScatterOptions& options) override;
  Work send(Tensors& tensors, int to, int tag) override;
  Work recv(Tensors& tensors, int from, int tag) override;

 private:
  Inner inner_;
  std::shared_ptr<Traffic> traffic_;
};

}  // namespace gpt
