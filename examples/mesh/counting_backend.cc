#include "examples/mesh/counting_backend.h"

#include <ATen/ATen.h>

#include <chrono>
#include <functional>
#include <thread>
#include <utility>

namespace gpt {

namespace {

// A collective under way, until the program has waited for it. Then `then` runs.
class Exchange final : public c10d::Work {
 public:
  explicit Exchange(c10::intrusive_ptr<c10d::Work> work, std::function<void()> then = {})
      : work_(std::move(work)), then_(std::move(then)) {}

  bool isCompleted() override { return work_ == nullptr || work_->isCompleted(); }
  bool isSuccess() const override { return work_ == nullptr || work_->isSuccess(); }
  bool wait(std::chrono::milliseconds timeout) override {
    if (work_ == nullptr) return true;
    const bool done = work_->wait(timeout);
    const c10::weak_intrusive_ptr<c10d::Work> gone(work_);
    work_.reset();
    // All strong references together count as a weak one. The work, and its tensors with it, goes with `gone`.
    while (gone.weak_use_count() > 1) std::this_thread::yield();
    if (then_) then_();
    then_ = {};
    return done;
  }
  void synchronize() override { wait(kNoTimeout); }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  std::function<void()> then_;
};

}  // namespace

CountingBackend::Work CountingBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  for (const at::Tensor& tensor : tensors) traffic_->all_reduce.add(tensor);
  return c10::make_intrusive<Exchange>(inner_->allreduce(tensors, options));
}

CountingBackend::Work CountingBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                       const c10d::AllgatherOptions& options) {
  traffic_->all_gather.add(output);
  return c10::make_intrusive<Exchange>(inner_->_allgather_base(output, input, options));
}

CountingBackend::Work CountingBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                       const c10d::AllgatherOptions& options) {
  for (const at::Tensor& output : outputs) traffic_->all_gather.add(output);
  return c10::make_intrusive<Exchange>(inner_->allgather_into_tensor_coalesced(outputs, inputs, options));
}

CountingBackend::Work CountingBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                            const c10d::ReduceScatterOptions& options) {
  Tensors outputs = {output}, inputs = {input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

// As gloo does it, by an all-reduce of a copy. Gloo's own work for it hides the work that has the copy.
CountingBackend::Work CountingBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                       const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK(outputs.size() == 1 && inputs.size() == 1, "CountingBackend scatters one tensor at a time, not ",
              inputs.size(), ".");
  traffic_->reduce_scatter.add(inputs[0]);
  Tensors sums = {inputs[0].clone()};
  c10d::AllreduceOptions reduction;
  reduction.reduceOp = options.reduceOp;
  reduction.timeout = options.timeout;
  Work work = inner_->allreduce(sums, reduction);
  return c10::make_intrusive<Exchange>(std::move(work), [output = outputs[0], sum = sums[0], rank = getRank()] {
    at::Tensor mine = output;
    mine.copy_(sum.narrow(0, rank * mine.size(0), mine.size(0)));
  });
}

CountingBackend::Work CountingBackend::send(Tensors& tensors, int to, int tag) {
  for (const at::Tensor& tensor : tensors) traffic_->sent.add(tensor);
  return inner_->send(tensors, to, tag);
}

CountingBackend::Work CountingBackend::recv(Tensors& tensors, int from, int tag) {
  for (const at::Tensor& tensor : tensors) traffic_->received.add(tensor);
  return inner_->recv(tensors, from, tag);
}

}  // namespace gpt
