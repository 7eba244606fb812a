#include "examples/mesh/communicator.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "examples/job.h"
#include "examples/mesh/counting_backend.h"

namespace gpt {
namespace {

struct Counted {
  Traffic* traffic;
  int64_t size;
};

// The groups that only count, by the name that operators are given. The autograd engine runs backward of meta tensors
// on the thread that calls it, so one thread uses this.
std::map<std::string, Counted>& counted_groups() {
  static std::map<std::string, Counted> groups;
  return groups;
}

const Counted& counted(const c10::IValue& name) {
  const auto found = counted_groups().find(name.toStringRef());
  TORCH_CHECK(found != counted_groups().end(), "A collective of meta tensors names the group \"", name.toStringRef(),
              "\", which is none of a Communicator that counts.");
  return found->second;
}

at::Tensor resized(const at::Tensor& tensor, int64_t first) {
  std::vector<int64_t> sizes = tensor.sizes().vec();
  sizes[0] = first;
  return at::empty(sizes, tensor.options());
}

// Boxed, because the types of the arguments that name the reduction and the group differ between LibTorch's versions.
void meta_all_reduce(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  const at::Tensor input = (*stack)[stack->size() - 3].toTensor();
  counted(stack->back()).traffic->all_reduce.add(input);
  torch::jit::drop(*stack, 3);
  stack->emplace_back(at::empty(input.sizes(), input.options()));
}

void meta_all_gather(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  const at::Tensor input = (*stack)[stack->size() - 3].toTensor();
  const Counted& group = counted(stack->back());
  torch::jit::drop(*stack, 3);
  const at::Tensor output = resized(input, input.size(0) * group.size);
  group.traffic->all_gather.add(output);
  stack->emplace_back(output);
}

void meta_reduce_scatter(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  const at::Tensor input = (*stack)[stack->size() - 4].toTensor();
  const Counted& group = counted(stack->back());
  torch::jit::drop(*stack, 4);
  group.traffic->reduce_scatter.add(input);
  stack->emplace_back(resized(input, input.size(0) / group.size));
}

void install_meta_collectives() {
  static torch::Library library(torch::Library::IMPL, "_c10d_functional", c10::DispatchKey::Meta, __FILE__, __LINE__);
  static const bool installed = [] {
    library.impl("all_reduce", torch::CppFunction::makeFromBoxedFunction<&meta_all_reduce>());
    library.impl("all_gather_into_tensor", torch::CppFunction::makeFromBoxedFunction<&meta_all_gather>());
    library.impl("reduce_scatter_tensor", torch::CppFunction::makeFromBoxedFunction<&meta_reduce_scatter>());
    return true;
  }();
  static_cast<void>(installed);
}

at::Tensor call(const char* name, torch::jit::Stack arguments) {
  c10::Dispatcher::singleton().findSchemaOrThrow(name, "").callBoxed(&arguments);
  return arguments.back().toTensor();
}

at::Tensor call_and_wait(const char* name, torch::jit::Stack arguments) {
  return call("_c10d_functional::wait_tensor", {call(name, std::move(arguments))});
}

// Never one that another Communicator has, or has had.
std::string new_name(const std::string& axis) {
  static std::atomic<int64_t> count{0};
  return axis + "/" + std::to_string(count++);
}

}  // namespace

Communicator::Communicator(const std::string& axis, int64_t size, int64_t rank)
    : size_(size), rank_(rank), name_(new_name(axis)) {
  install_meta_collectives();
  counted_groups().emplace(name_, Counted{traffic_.get(), size});
}

Communicator::Communicator(const std::string& axis, const c10::intrusive_ptr<c10d::Store>& store,
                           const std::vector<int64_t>& ranks, int64_t self)
    : size_(static_cast<int64_t>(ranks.size())),
      rank_(std::find(ranks.begin(), ranks.end(), self) - ranks.begin()),
      name_(new_name(axis)) {
  TORCH_CHECK(rank_ < size_, "Process ", self, " is not in the ", axis, " group that it is to be connected with.");
  if (size_ == 1) return;
  // The first one's rank tells the groups of an axis apart.
  auto own = c10::make_intrusive<c10d::PrefixStore>(axis + "/" + std::to_string(ranks.front()), store);
  group_ = connect_group(own, static_cast<int>(rank_), static_cast<int>(size_), [&](auto backend) {
    return c10::make_intrusive<CountingBackend>(std::move(backend), traffic_);
  });
  c10d::register_process_group(name_, group_);
}

Communicator::~Communicator() {
  if (group_) c10d::unregister_process_group(name_);
  counted_groups().erase(name_);
}

at::Tensor Communicator::all_reduce(const at::Tensor& mine, const std::string& op) {
  return size_ == 1 ? mine : call_and_wait("_c10d_functional::all_reduce", {mine.contiguous(), op, name_});
}

at::Tensor Communicator::all_gather(const at::Tensor& mine) {
  return size_ == 1 ? mine
                    : call_and_wait("_c10d_functional::all_gather_into_tensor", {mine.contiguous(), size_, name_});
}

at::Tensor Communicator::reduce_scatter(const at::Tensor& all) {
  if (size_ == 1) return all;
  TORCH_CHECK(all.size(0) % size_ == 0, "A tensor of sizes ", all.sizes(), " cannot be split among ", size_,
              " processes.");
  return call_and_wait("_c10d_functional::reduce_scatter_tensor", {all.contiguous(), "sum", size_, name_});
}

void Communicator::finish(Sending& sending) {
  if (sending.work) sending.work->wait();
  sending = {};
}

void Communicator::send(const at::Tensor& tensor, Neighbour to) {
  Sending& sending = to == Neighbour::kAfter ? after_ : before_;
  finish(sending);
  sending.tensors = {tensor.detach().contiguous()};
  if (group_) {
    sending.work = group_->send(sending.tensors, peer(to), /*tag=*/0);
  } else {
    traffic_->sent.add(tensor);
  }
}

at::Tensor Communicator::receive(at::IntArrayRef sizes, const at::TensorOptions& options, Neighbour from) {
  std::vector<at::Tensor> tensors = {at::empty(sizes, options)};
  if (group_) {
    group_->recv(tensors, peer(from), /*tag=*/0)->wait();
  } else {
    traffic_->received.add(tensors[0]);
  }
  return tensors[0];
}

void Communicator::flush() {
  finish(before_);
  finish(after_);
}

}  // namespace gpt
