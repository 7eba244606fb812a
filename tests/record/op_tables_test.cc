// The tables of what LibTorch's schemas do not say of its operators, held against those schemas. Ops for GPUs run in no
// test on a machine without one, and a wrong name or number would do nothing.
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ac2/internal/operators/op_facts.h"
#include "ac2/internal/operators/op_tables.h"

namespace ac2::internal {
namespace {

const OpFacts& facts_of(const char* op) {
  return op_facts(c10::Dispatcher::singleton().findSchemaOrThrow(op, ""));
}

std::vector<std::string> written_arguments(const char* op) {
  const OpFacts& facts = facts_of(op);
  std::vector<std::string> names;
  for (const uint16_t i : facts.written) names.push_back(facts.op.schema().arguments()[i].name());
  return names;
}

std::string condition_of(const char* op) {
  const OpFacts& facts = facts_of(op);
  return facts.written_only_if < 0 ? "" : facts.op.schema().arguments()[facts.written_only_if].name();
}

// derivatives.yaml: the backward of each gets `result3`, cloned if the graph is retained.
TEST(OpTablesTest, TheResultThatABackwardKernelOverwritesIsTheFourth) {
  for (const char* op : {"aten::_cudnn_rnn", "aten::miopen_rnn", "aten::mkldnn_rnn_layer", "aten::cudnn_batch_norm",
                         "aten::_batch_norm_with_update", "aten::_batch_norm_with_update_functional"}) {
    const OpFacts& facts = facts_of(op);
    ASSERT_EQ(facts.clobbered_results.size(), 1) << op;
    EXPECT_EQ(facts.clobbered_results[0], 3) << op;
    EXPECT_GT(facts.num_returns, 3) << op;
    EXPECT_TRUE(is_undefined_result(op, 3)) << op;
  }
}

TEST(OpTablesTest, RecurrentLayersAdvanceTheStateOfDropoutInTrainingAlone) {
  for (const char* op : {"aten::_cudnn_rnn", "aten::miopen_rnn"}) {
    EXPECT_EQ(written_arguments(op), std::vector<std::string>{"dropout_state"}) << op;
    EXPECT_EQ(condition_of(op), "train") << op;
    EXPECT_TRUE(facts_of(op).written_unseen.empty()) << op;  // results depend on it
  }
}

TEST(OpTablesTest, NormalisationWritesItsRunningStatistics) {
  const std::vector<std::string> statistics = {"running_mean", "running_var"};
  for (const char* op : {"aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm",
                         "aten::_batch_norm_impl_index", "aten::batch_norm"}) {
    EXPECT_EQ(written_arguments(op), statistics) << op;
    EXPECT_EQ(condition_of(op), "training") << op;
  }
  for (const char* op : {"aten::batch_norm_update_stats", "aten::batch_norm_gather_stats",
                         "aten::batch_norm_gather_stats_with_counts"}) {
    EXPECT_EQ(written_arguments(op), statistics) << op;
    EXPECT_EQ(condition_of(op), "") << op;
  }
  EXPECT_EQ(condition_of("aten::instance_norm"), "use_input_stats");
}

TEST(OpTablesTest, AttentionOnGpusDrawsAndSaysSo) {
  for (const char* op : {"aten::_scaled_dot_product_flash_attention", "aten::_scaled_dot_product_efficient_attention",
                         "aten::_scaled_dot_product_cudnn_attention", "aten::_flash_attention_forward",
                         "aten::_efficient_attention_forward", "aten::_cudnn_attention_forward"}) {
    const OpFacts& facts = facts_of(op);
    EXPECT_TRUE(facts.draws) << op;
    EXPECT_LT(facts.generator_argument, 0) << op;  // from the default generator
    // Seed and offset, by their names: counted without the results that are no tensors.
    int tensor = 0;
    for (const c10::Argument& result : facts.op.schema().returns()) {
      if (result.type()->kind() != c10::TypeKind::TensorType) continue;
      const std::string& name = result.name();
      const bool undefined = name == "rng_state" || name == "unused" || name.starts_with("philox");
      const bool padded = std::string(op).find("efficient") != std::string::npos && tensor == 1;
      EXPECT_EQ(is_undefined_result(op, tensor), undefined || padded) << op << " " << name;
      ++tensor;
    }
  }
}

// --- Collectives -----------------------------------------------------------------------------------------------------
//
// Which of c10d's ops write, and to what, by all versions of LibTorch: no schema of c10d's says so.

const std::map<std::string, std::vector<std::string>>& writes_of_c10d() {
  static const std::map<std::string, std::vector<std::string>> writes = {
      {"c10d::_allgather_base_", {"output_tensor"}},
      {"c10d::_reduce_scatter_base_", {"output_tensor"}},
      {"c10d::allgather_", {"output_tensors"}},
      {"c10d::allgather_coalesced_", {"output_lists"}},
      {"c10d::allgather_into_tensor_coalesced_", {"outputs"}},
      {"c10d::allreduce_", {"tensors"}},
      {"c10d::allreduce_coalesced_", {"tensors"}},
      {"c10d::alltoall_", {"output_tensors"}},
      {"c10d::alltoall_base_", {"output"}},
      {"c10d::barrier", {}},
      {"c10d::broadcast_", {"tensors"}},
      {"c10d::check_for_nan", {}},
      {"c10d::gather_", {"output_tensors"}},
      {"c10d::gather_into_tensor_", {"output_tensor"}},
      {"c10d::monitored_barrier_", {}},
      {"c10d::recv_", {"tensors"}},
      {"c10d::recv_any_source_", {"tensors"}},
      {"c10d::reduce_", {"tensors"}},
      {"c10d::reduce_scatter_", {"output_tensors"}},
      {"c10d::reduce_scatter_tensor_coalesced_", {"outputs"}},
      {"c10d::scatter_", {"output_tensors"}},
      {"c10d::send", {}},
  };
  return writes;
}

std::vector<c10::OperatorHandle> ops_of(std::initializer_list<std::string_view> namespaces) {
  std::vector<c10::OperatorHandle> ops;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const bool wanted = std::any_of(namespaces.begin(), namespaces.end(),
                                    [&](std::string_view prefix) { return name.name.starts_with(prefix); });
    const auto op = wanted ? c10::Dispatcher::singleton().findSchema(name) : std::nullopt;
    if (op) ops.push_back(*op);
  }
  return ops;
}

TEST(OpTablesTest, EveryOpOfC10dWritesWhatTheTableSays) {
  int64_t found = 0;
  for (const c10::OperatorHandle& op : ops_of({"c10d::"})) {
    const auto row = writes_of_c10d().find(op.schema().name());
    ASSERT_NE(row, writes_of_c10d().end())
        << op.schema() << " is new: find out what it writes, and add a row here and in op_tables.cc";
    EXPECT_EQ(written_arguments(op.schema().name().c_str()), row->second) << op.schema();
    ++found;
  }
  EXPECT_GT(found, 15);
}

// Where it is declared; irecv() and batch_p2p_ops() of the functional collectives do not declare it.
TEST(OpTablesTest, EveryCollectiveThatIsNamedLikeAWriteHasOne) {
  for (const c10::OperatorHandle& op : ops_of({"_c10d_functional::", "c10d_functional::", "symm_mem::"})) {
    const std::string& name = op.schema().name();
    if (name.ends_with('_') || name.ends_with("_out") || name.ends_with("::irecv") || name.ends_with("_p2p_ops")) {
      EXPECT_FALSE(op_facts(op).written.empty()) << op.schema();
    }
  }
}

TEST(OpTablesTest, EveryCollectiveCommunicatesAndIsReplayedOnRequestAtMost) {
  int64_t on_request = 0;
  for (const c10::OperatorHandle& op : ops_of({"c10d::", "_c10d_functional::", "_c10d_functional_autograd::",
                                               "c10d_functional::", "fsdp::", "symm_mem::"})) {
    const OpFacts& facts = op_facts(op);
    EXPECT_TRUE(facts.communicates) << op.schema();
    EXPECT_TRUE(facts.never_recompute || facts.written.empty()) << op.schema();
    on_request += facts.never_recompute ? 0 : 1;
  }
  EXPECT_GT(on_request, 0);
  EXPECT_TRUE(facts_of("_c10d_functional::wait_tensor").never_recompute);
  EXPECT_FALSE(facts_of("aten::mm").communicates);
}

// FSDP registers this one in Python.
TORCH_LIBRARY_FRAGMENT(fsdp, m) {
  m.def(
      "all_gather_copy_in(Tensor[] all_gather_inputs, Tensor all_gather_output, SymInt[] inp_split_sizes, "
      "SymInt all_gather_input_numel, SymInt rank) -> (Tensor, Tensor)");
}
TORCH_LIBRARY(ac2_op_tables_test, m) {
  m.def("by_group(Tensor x, __torch__.torch.classes.c10d.ProcessGroup group) -> Tensor");
  m.def("by_name(Tensor x, str group_name) -> Tensor");
  m.def("alone(Tensor x, str name) -> Tensor");
}

TEST(OpTablesTest, AnUnknownOpThatTakesAProcessGroupCommunicates) {
  EXPECT_EQ(written_arguments("fsdp::all_gather_copy_in"), std::vector<std::string>{"all_gather_output"});
  EXPECT_TRUE(facts_of("ac2_op_tables_test::by_group").communicates);
  EXPECT_TRUE(facts_of("ac2_op_tables_test::by_name").communicates);
  EXPECT_FALSE(facts_of("ac2_op_tables_test::alone").communicates);
}

}  // namespace
}  // namespace ac2::internal
