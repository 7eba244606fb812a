// The tables of what LibTorch's schemas do not say of its operators, held against those schemas. Ops for GPUs run in no
// test on a machine without one, and a wrong name or number would do nothing.
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
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

}  // namespace
}  // namespace ac2::internal
