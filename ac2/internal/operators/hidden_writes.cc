#include "ac2/internal/operators/hidden_writes.h"

#include <algorithm>
#include <array>

namespace ac2::internal {

namespace {

constexpr std::array<std::string_view, 2> kRunningStatistics = {"running_mean", "running_var"};
constexpr std::array<std::string_view, 1> kNoise = {"noise"};
constexpr std::array<std::string_view, 1> kDropoutState = {"dropout_state"};
constexpr std::array<std::string_view, 1> kTensors = {"tensors"};
constexpr std::array<std::string_view, 1> kOutputTensors = {"output_tensors"};
constexpr std::array<std::string_view, 1> kOutputTensor = {"output_tensor"};
constexpr std::array<std::string_view, 1> kOutput = {"output"};

// Normalisation in training computes its results from the batch alone and adds the batch's statistics to the running
// ones. batch_norm and instance_norm are composite: they arrive here whole in inference mode alone.
constexpr std::array<HiddenWrites, 26> kTable = {{
    {"aten::native_batch_norm", kRunningStatistics, "training", false},
    {"aten::batch_norm_update_stats", kRunningStatistics, "", false},
    {"aten::cudnn_batch_norm", kRunningStatistics, "training", false},
    {"aten::miopen_batch_norm", kRunningStatistics, "training", false},
    {"aten::_batch_norm_impl_index", kRunningStatistics, "training", false},
    {"aten::batch_norm_gather_stats", kRunningStatistics, "", false},
    {"aten::batch_norm_gather_stats_with_counts", kRunningStatistics, "", false},
    {"aten::batch_norm", kRunningStatistics, "training", false},
    {"aten::instance_norm", kRunningStatistics, "use_input_stats", false},
    // Their schema does say so, but autograd has saved the noise before they make it, and expects to find it made.
    {"aten::rrelu_with_noise", kNoise, "", false},
    {"aten::rrelu_with_noise_", kNoise, "", false},
    {"aten::_cudnn_rnn", kDropoutState, "train", true},
    {"aten::miopen_rnn", kDropoutState, "train", true},
    {"c10d::allreduce_", kTensors, "", true},
    {"c10d::allreduce_coalesced_", kTensors, "", true},
    {"c10d::broadcast_", kTensors, "", true},
    {"c10d::reduce_", kTensors, "", true},
    {"c10d::recv_", kTensors, "", true},
    {"c10d::recv_any_source_", kTensors, "", true},
    {"c10d::allgather_", kOutputTensors, "", true},
    {"c10d::_allgather_base_", kOutputTensor, "", true},
    {"c10d::reduce_scatter_", kOutputTensors, "", true},
    {"c10d::_reduce_scatter_base_", kOutputTensor, "", true},
    {"c10d::scatter_", kOutputTensors, "", true},
    {"c10d::alltoall_", kOutputTensors, "", true},
    {"c10d::alltoall_base_", kOutput, "", true},
}};

}  // namespace

const HiddenWrites* find_hidden_writes(std::string_view op) {
  const auto* row = std::find_if(kTable.begin(), kTable.end(), [op](const HiddenWrites& w) { return w.op == op; });
  return row == kTable.end() ? nullptr : row;
}

}  // namespace ac2::internal
