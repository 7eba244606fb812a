#include "ac2/internal/operators/op_tables.h"

#include <algorithm>
#include <array>

namespace ac2::internal {

namespace {

// Tables are searched from front to back: each op is looked up once in a process, when its OpFacts are made.
template <size_t N>
bool contains(const std::array<std::string_view, N>& ops, std::string_view op) {
  return std::find(ops.begin(), ops.end(), op) != ops.end();
}

struct OpResult {
  std::string_view op;
  int result;
};

template <size_t N>
bool contains(const std::array<OpResult, N>& rows, std::string_view op, int result) {
  return std::any_of(rows.begin(), rows.end(), [&](const OpResult& r) { return r.op == op && r.result == result; });
}

// --- Writes that schemas do not declare ------------------------------------------------------------------------------
//
// A row: the op, which of its arguments it writes, when it does so, and whether results depend on what they held.
// To add one: a row here, and a case in the tests of writes (write_ops_test.cc) that fails without it.

constexpr std::array<std::string_view, 2> kRunningStatistics = {"running_mean", "running_var"};
constexpr std::array<std::string_view, 1> kNoise = {"noise"};
constexpr std::array<std::string_view, 1> kDropoutState = {"dropout_state"};
constexpr std::array<std::string_view, 1> kTensors = {"tensors"};
constexpr std::array<std::string_view, 1> kOutputTensors = {"output_tensors"};
constexpr std::array<std::string_view, 1> kOutputTensor = {"output_tensor"};
constexpr std::array<std::string_view, 1> kOutput = {"output"};
constexpr std::array<std::string_view, 1> kOutputs = {"outputs"};
constexpr std::array<std::string_view, 1> kOutputLists = {"output_lists"};
constexpr std::array<std::string_view, 1> kAllGatherOutput = {"all_gather_output"};
constexpr std::array<std::string_view, 1> kTensor = {"tensor"};
constexpr std::array<std::string_view, 1> kSelf = {"self"};
constexpr std::array<std::string_view, 1> kSymmBuffer = {"symm_buffer"};

constexpr std::array<HiddenWrites, 38> kHiddenWrites = {{
    // Normalisation in training computes its results from the batch alone, and adds the batch's statistics to the
    // running ones. batch_norm and instance_norm are composite: they arrive here whole in inference mode alone.
    {"aten::native_batch_norm", kRunningStatistics, "training", false},
    {"aten::batch_norm_update_stats", kRunningStatistics, "", false},
    {"aten::cudnn_batch_norm", kRunningStatistics, "training", false},
    {"aten::miopen_batch_norm", kRunningStatistics, "training", false},
    {"aten::_batch_norm_impl_index", kRunningStatistics, "training", false},
    {"aten::batch_norm_gather_stats", kRunningStatistics, "", false},
    {"aten::batch_norm_gather_stats_with_counts", kRunningStatistics, "", false},
    {"aten::batch_norm", kRunningStatistics, "training", false},
    {"aten::instance_norm", kRunningStatistics, "use_input_stats", false},
    // The schema of these does declare the write. But autograd saves the noise before the op has written it, and
    // expects to find it written.
    {"aten::rrelu_with_noise", kNoise, "", false},
    {"aten::rrelu_with_noise_", kNoise, "", false},
    {"aten::_cudnn_rnn", kDropoutState, "train", true},
    {"aten::miopen_rnn", kDropoutState, "train", true},
    // Collectives. c10d declares none of its writes. The written bytes are there when the collective has been waited
    // for.
    {"c10d::allreduce_", kTensors, "", true},
    {"c10d::allreduce_coalesced_", kTensors, "", true},
    {"c10d::broadcast_", kTensors, "", true},
    {"c10d::reduce_", kTensors, "", true},
    {"c10d::recv_", kTensors, "", true},
    {"c10d::recv_any_source_", kTensors, "", true},
    {"c10d::gather_", kOutputTensors, "", true},
    {"c10d::gather_into_tensor_", kOutputTensor, "", true},
    {"c10d::allgather_", kOutputTensors, "", true},
    {"c10d::_allgather_base_", kOutputTensor, "", true},
    {"c10d::allgather_coalesced_", kOutputLists, "", true},
    {"c10d::allgather_into_tensor_coalesced_", kOutputs, "", true},
    {"c10d::reduce_scatter_", kOutputTensors, "", true},
    {"c10d::_reduce_scatter_base_", kOutputTensor, "", true},
    {"c10d::reduce_scatter_tensor_coalesced_", kOutputs, "", true},
    {"c10d::scatter_", kOutputTensors, "", true},
    {"c10d::alltoall_", kOutputTensors, "", true},
    {"c10d::alltoall_base_", kOutput, "", true},
    // Of a batch the messages that are sent are written to no more than any other argument; which are is in another.
    {"_c10d_functional::irecv", kTensor, "", true},
    {"_c10d_functional::batch_p2p_ops", kTensors, "", true},
    {"c10d_functional::irecv", kSelf, "", true},
    {"c10d_functional::batch_p2p_ops", kTensors, "", true},
    // Copies what this process sends into its part of the output, and returns views of that.
    {"fsdp::all_gather_copy_in", kAllGatherOutput, "", true},
    // Copies its input into the memory that processes share.
    {"symm_mem::one_shot_all_reduce_copy", kSymmBuffer, "", true},
    {"symm_mem::one_shot_all_reduce_copy_out", kSymmBuffer, "", true},
}};

// --- Ops that are never replayed -------------------------------------------------------------------------------------
//
// A row: a factory that draws no random numbers. The bytes that user code writes into its result through data_ptr()
// would be lost if the factory ran again; torch::tensor() itself fills an aten::empty that way. To add one: a row here.
// A factory that is missing is replayed, and verify mode finds what was lost.

constexpr std::array<std::string_view, 32> kConstantFactories = {
    "aten::empty",
    "aten::empty_like",
    "aten::empty_strided",
    "aten::empty_permuted",
    "aten::empty_quantized",
    "aten::new_empty",
    "aten::new_empty_strided",
    "aten::_empty_affine_quantized",
    "aten::zeros",
    "aten::zeros_like",
    "aten::new_zeros",
    "aten::_efficientzerotensor",
    "aten::ones",
    "aten::ones_like",
    "aten::new_ones",
    "aten::full",
    "aten::full_like",
    "aten::new_full",
    "aten::scalar_tensor",
    "aten::arange",
    "aten::range",
    "aten::linspace",
    "aten::logspace",
    "aten::eye",
    "aten::tril_indices",
    "aten::triu_indices",
    "aten::from_file",
    "aten::bartlett_window",
    "aten::blackman_window",
    "aten::hamming_window",
    "aten::hann_window",
    "aten::kaiser_window",
};

// A row: a namespace of ops that communicate. Running one again would send something again, which the other processes
// do not expect. An op of another namespace needs no row if it takes the group of processes as an argument.
constexpr std::array<std::string_view, 6> kCollectiveNamespaces = {
    "c10d::", "_c10d_functional::", "_c10d_functional_autograd::", "c10d_functional::", "fsdp::", "symm_mem::",
};

// A row: an op that waits for what another one writes, and returns what it was given.
constexpr std::array<std::string_view, 3> kWaits = {
    "_c10d_functional::wait_tensor",
    "_c10d_functional::wait_tensors",
    "c10d_functional::wait_tensor",
};

// A row: an op that resizes its first argument.
constexpr std::array<std::string_view, 4> kResizes = {
    "aten::resize_",
    "aten::resize_as_",
    "aten::resize_as_sparse_",
    "aten::_resize_output_",
};

// --- In-place ops whose replay needs no old bytes --------------------------------------------------------------------
//
// A row: an in-place op that writes every element of its first argument and reads none. Its replay gets scratch memory
// instead of a copy of the old value. So empty_like(x).bernoulli_(p), which is dropout on the CPU, is computed again
// from the generator's state alone. To add one: a row here, and a case in write_ops_test.cc, because a wrong row
// computes with garbage.

constexpr std::array<std::string_view, 11> kOverwrites = {
    "aten::fill_",      "aten::zero_",        "aten::copy_",   "aten::normal_",     "aten::uniform_",   "aten::random_",
    "aten::bernoulli_", "aten::exponential_", "aten::cauchy_", "aten::log_normal_", "aten::geometric_",
};

// --- Ops that write metadata -----------------------------------------------------------------------------------------
//
// A row: an op that changes sizes, strides, names, autograd's metadata or which storage a tensor has, and no bytes. Ops
// with Tag::inplace_view need no row unless they are resizes.

constexpr std::array<std::string_view, 6> kMetadataWrites = {
    "aten::set_", "aten::detach_", "aten::rename_", "aten::requires_grad_", "aten::set_data", "aten::retain_grad",
};

// A row: an op with Tag::inplace_view for which ADInplaceOrView counts no new version. (ADInplaceOrView counts one for
// the others, though no byte has changed.)
constexpr std::array<std::string_view, 1> kWithoutVersion = {"aten::detach_"};

// --- Results -------------------------------------------------------------------------------------------------------
//
// A row: an op, and the number of a result (a reserve space or workspace) into which its backward kernel writes. Such a
// result is handed to backward as a copy.
// To add one: find the result that derivatives.yaml clones if the graph is retained; a row here, and its op in
// op_tables_test.cc.

constexpr std::array<OpResult, 6> kClobbered = {{
    {"aten::_cudnn_rnn", 3},
    {"aten::miopen_rnn", 3},
    {"aten::mkldnn_rnn_layer", 3},
    {"aten::cudnn_batch_norm", 3},
    {"aten::_batch_norm_with_update", 3},
    {"aten::_batch_norm_with_update_functional", 3},
}};

// A row: an op, and the number of a result among those that are tensors, of which some bytes are whatever was in memory
// before. Verify mode does not compare such results.
// To add one: a row here with the reason, and its op in op_tables_test.cc.

constexpr std::array<OpResult, 22> kUndefined = {{
    {"aten::mkldnn_rnn_layer", 3},  // workspace
    {"aten::_cudnn_rnn", 3},        // reserve
    {"aten::miopen_rnn", 3},        // reserve
    {"aten::_ctc_loss", 1},         // log_alpha past each sequence's length
    {"aten::_cudnn_ctc_loss", 1},   // log_gradient, the same
    {"aten::cudnn_batch_norm", 3},  // reserve
    {"aten::_batch_norm_with_update", 3},
    {"aten::_batch_norm_with_update_functional", 3},
    // Attention on CUDA: seed and offset are written only with dropout, and one of the two results is only a
    // placeholder. The efficient kernels pad their sums.
    {"aten::_scaled_dot_product_flash_attention", 4},
    {"aten::_scaled_dot_product_flash_attention", 5},
    {"aten::_flash_attention_forward", 2},
    {"aten::_flash_attention_forward", 3},
    {"aten::_scaled_dot_product_efficient_attention", 1},
    {"aten::_scaled_dot_product_efficient_attention", 2},
    {"aten::_scaled_dot_product_efficient_attention", 3},
    {"aten::_efficient_attention_forward", 1},
    {"aten::_efficient_attention_forward", 2},
    {"aten::_efficient_attention_forward", 3},
    {"aten::_scaled_dot_product_cudnn_attention", 4},
    {"aten::_scaled_dot_product_cudnn_attention", 5},
    {"aten::_cudnn_attention_forward", 4},
    {"aten::_cudnn_attention_forward", 5},
}};

// Parts of the names of ops that multiply matrices or convolve. A name that has one by chance ("aten::cummax") costs a
// look at three settings a call, and nothing else. Ops that are made of others and ops of other libraries need no row.
constexpr std::array<std::string_view, 16> kProducts = {
    "attention", "cholesky", "conv", "dist", "dot", "gru",   "linalg", "linear",
    "lstm",      "lu",       "mm",   "mv",   "rnn", "solve", "svd",    "transformer",
};

// --- Integers and bools that do not depend on numbers ----------------------------------------------------------------
//
// A row: the op, or how the names of a family of ops begin. Where values may be held in an inexact form, all other ops
// that return integers or bools and take other numbers are saved (record/discrete_results.h). A row that is missing
// costs memory. A row too many makes gradients wrong. To add one: a row here, and a case in narrow_and_choose_test.cc
// that fails without it.

constexpr std::array<std::string_view, 9> kDiscreteOfNoNumbers = {
    "aten::native_dropout", "aten::_fused_dropout", "aten::zeros_like", "aten::ones_like", "aten::full_like",
    "aten::randint_like",   "aten::new_zeros",      "aten::new_ones",   "aten::new_full"};
// Attention returns the state of the generator that it has drawn from, and the places where sequences begin.
constexpr std::array<std::string_view, 4> kAttention = {"aten::_scaled_dot_product_", "aten::_flash_attention_",
                                                        "aten::_efficient_attention_", "aten::_cudnn_attention_"};

// --- Ops whose kernels add in any order ------------------------------------------------------------------------------
//
// A row: the op without a trailing underscore. What chooses by results that such an op may compute otherwise the next
// time is saved (record/discrete_results.h). The rows are those of torch.use_deterministic_algorithms() and of the
// alertNotDeterministic() calls in aten/src/ATen/native. A row that is missing makes gradients of a model with a router
// wrong where the kernel does vary. A row too many costs the bytes of choices. To add one: a row here.
//
// Not among them: products and convolutions. cuBLAS and cuDNN compute the same bits again on one stream of one device,
// and a replay runs on the stream of forward.

constexpr std::array<std::string_view, 4> kVariesEverywhere = {"aten::index_put", "aten::_index_put_impl",
                                                               "aten::_unsafe_index_put", "aten::put"};
constexpr std::array<std::string_view, 20> kVariesOnAccelerators = {
    "aten::scatter_add",  "aten::scatter_reduce", "aten::scatter",         "aten::index_add",
    "aten::index_copy",   "aten::index_reduce",   "aten::bincount",        "aten::histc",
    "aten::kthvalue",     "aten::median",         "aten::nanmedian",       "aten::cumsum",
    "aten::nll_loss2d",   "aten::_sparse_mm",     "aten::_sparse_addmm",   "aten::max_unpool2d",
    "aten::max_unpool3d", "aten::segment_reduce", "aten::_segment_reduce", "aten::nll_loss2d_forward"};

}  // namespace

const HiddenWrites* find_hidden_writes(std::string_view op) {
  const auto* row =
      std::find_if(kHiddenWrites.begin(), kHiddenWrites.end(), [op](const HiddenWrites& w) { return w.op == op; });
  return row == kHiddenWrites.end() ? nullptr : row;
}

bool is_constant_factory(std::string_view op) {
  return contains(kConstantFactories, op);
}

bool overwrites_in_place(std::string_view op) {
  return contains(kOverwrites, op);
}

bool describes_nested(std::string_view op) {
  return op == "aten::_nested_tensor_size" || op == "aten::_nested_tensor_strides" ||
         op == "aten::_nested_tensor_storage_offsets";
}

bool is_resize(std::string_view op) {
  return contains(kResizes, op);
}

bool writes_metadata(std::string_view op) {
  return contains(kMetadataWrites, op);
}

bool counts_no_version(std::string_view op) {
  return contains(kWithoutVersion, op);
}

bool computes_products(std::string_view op) {
  return std::any_of(kProducts.begin(), kProducts.end(),
                     [op](std::string_view part) { return op.find(part) != std::string_view::npos; });
}

bool is_collective(std::string_view op) {
  return std::any_of(kCollectiveNamespaces.begin(), kCollectiveNamespaces.end(),
                     [op](std::string_view prefix) { return op.starts_with(prefix); });
}

bool waits_for_collective(std::string_view op) {
  return contains(kWaits, op);
}

bool returns_before_results_come(std::string_view op) {
  return op.starts_with("_c10d_functional::") && !waits_for_collective(op) &&
         op != "_c10d_functional::_wrap_tensor_autograd";
}

bool is_clobbered_result(std::string_view op, int result) {
  return contains(kClobbered, op, result);
}

bool is_undefined_result(std::string_view op, int tensor) {
  return contains(kUndefined, op, tensor);
}

bool has_discrete_results_of_no_numbers(std::string_view op) {
  return contains(kDiscreteOfNoNumbers, op) ||
         std::any_of(kAttention.begin(), kAttention.end(),
                     [op](std::string_view prefix) { return op.starts_with(prefix); });
}

Varies where_it_varies(std::string_view op) {
  if (op.ends_with('_')) {
    op.remove_suffix(1);
  }
  if (contains(kVariesEverywhere, op)) {
    return Varies::kEverywhere;
  }
  const bool is_derivative = op.ends_with("_backward");
  return is_derivative || contains(kVariesOnAccelerators, op) ? Varies::kOnAccelerators : Varies::kNowhere;
}

}  // namespace ac2::internal
