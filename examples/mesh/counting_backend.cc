#include "examples/mesh/counting_backend.h"

namespace gpt {

CountingBackend::Work CountingBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  for (const at::Tensor& tensor : tensors) traffic_->all_reduce.add(tensor);
  return inner_->allreduce(tensors, options);
}

CountingBackend::Work CountingBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                       const c10d::AllgatherOptions& options) {
  traffic_->all_gather.add(output);
  return inner_->_allgather_base(output, input, options);
}

CountingBackend::Work CountingBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                       const c10d::AllgatherOptions& options) {
  for (const at::Tensor& output : outputs) traffic_->all_gather.add(output);
  return inner_->allgather_into_tensor_coalesced(outputs, inputs, options);
}

CountingBackend::Work CountingBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                            const c10d::ReduceScatterOptions& options) {
  traffic_->reduce_scatter.add(input);
  return inner_->_reduce_scatter_base(output, input, options);
}

CountingBackend::Work CountingBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                       const c10d::ReduceScatterOptions& options) {
  for (const at::Tensor& input : inputs) traffic_->reduce_scatter.add(input);
  return inner_->reduce_scatter_tensor_coalesced(outputs, inputs, options);
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
