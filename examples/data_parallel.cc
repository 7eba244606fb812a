#include "examples/data_parallel.h"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <optional>
#include <type_traits>
#include <unordered_map>
#include <utility>

namespace gpt {
namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

// c10d's own all-reduce of one bucket, counted.
class CountingAllReduce : public c10d::CppCommHookInterface<Group> {
 public:
  CountingAllReduce(const Group& group, std::shared_ptr<Reduced> reduced)
      : CppCommHookInterface(group), reduced_(std::move(reduced)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    std::vector<at::Tensor> gradients = {bucket.getBufferRef()};
    ++reduced_->calls;
    reduced_->bytes += static_cast<int64_t>(gradients[0].nbytes());
    gradients[0] /= state_->getSize();
    return state_->allreduce(gradients)->getFuture();
  }

 private:
  std::shared_ptr<Reduced> reduced_;
};

// LibTorch's versions differ in how many arguments the constructor has after these.
template <class Reducer = c10d::Reducer>
std::unique_ptr<Reducer> make_reducer(const std::vector<at::Tensor>& parameters,
                                      std::vector<std::vector<size_t>> buckets, const Group& group) {
  using Names = std::unordered_map<size_t, std::string>;
  const std::vector<bool> sparse(parameters.size(), false);
  const int64_t most = c10d::kDefaultBucketBytesCap, first = c10d::kDefaultFirstBucketBytes;
  const auto make = [&](auto... rest) {
    return std::make_unique<Reducer>(parameters, std::move(buckets), group, sparse, most,
                                     /*find_unused_parameters=*/false, /*gradient_as_bucket_view=*/false, Names(),
                                     first, rest...);
  };
  const auto takes = [&]<class... Rest>(std::type_identity<Rest>...) {
    return std::is_constructible_v<Reducer, std::vector<at::Tensor>, std::vector<std::vector<size_t>>, Group,
                                   std::vector<bool>, int64_t, bool, bool, Names, int64_t, Rest...>;
  };
  using Flag = std::type_identity<bool>;
  using Caps = std::type_identity<std::vector<int64_t>>;
  if constexpr (takes()) {
    return make();
  } else if constexpr (takes(Flag(), Flag())) {
    return make(/*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false);
  } else {
    static_assert(takes(Flag(), Flag(), Caps()), "c10d::Reducer has a constructor that is not known here");
    return make(/*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
                std::vector<int64_t>{first, most});
  }
}

}  // namespace

DataParallel::DataParallel(Group group, std::vector<at::Tensor> parameters)
    : group_(std::move(group)), device_(parameters.at(0).device()), reduced_(std::make_shared<Reduced>()) {
  c10d::verify_params_across_processes(group_, parameters, std::nullopt);
  std::vector<at::Tensor> data;
  for (const at::Tensor& parameter : parameters) data.push_back(parameter.detach());
  c10d::broadcast_coalesced(group_, data, c10d::kDefaultBucketBytesCap);
  auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(
      parameters, {c10d::kDefaultFirstBucketBytes, c10d::kDefaultBucketBytesCap},
      std::vector<bool>(parameters.size(), false));
  reducer_ = make_reducer(parameters, std::move(buckets), group_);
  reducer_->register_comm_hook(std::make_unique<CountingAllReduce>(group_, reduced_));
}

DataParallel::~DataParallel() = default;

void DataParallel::before_forward() {
  // After the first backward, in the order in which its gradients came.
  if (reducer_->should_rebuild_buckets()) {
    reducer_->rebuild_buckets();
  }
  reducer_->prepare_for_forward();
}

void DataParallel::before_backward() {
  reducer_->prepare_for_backward({});
}

float DataParallel::mean(float value) {
  std::vector<at::Tensor> sum = {at::full({}, value, device_)};
  group_->allreduce(sum)->wait();
  return sum[0].item<float>() / static_cast<float>(group_->getSize());
}

}  // namespace gpt
