// The ready-made policies: what each decides about an operator, and which lists of names they refuse.
// Their effect on a region is in policies_region_test.cc.
#include "policies/policies.h"
#include "ac2/policy_instance.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tests/support/warnings.h"

namespace ac2::policies {
namespace {

using enum CheckpointPolicy;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TORCH_LIBRARY(ac2_policies_test, library) {
  library.def("twice(Tensor x) -> Tensor");
}

CheckpointPolicy decide(const Policy& policy, const char* op, const char* overload = "") {
  const PolicyInstance instance = enter_policy(policy);
  if (instance.constant) {
    return instance.constant->policy();
  }
  return instance.by_operator(c10::Dispatcher::singleton().findSchemaOrThrow(op, overload)).policy();
}

using test::warnings_of;

std::string error_of(const std::function<void()>& make) {
  try {
    make();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return "(no error)";
}

std::string save_ops_error(const std::string& op) {
  return error_of([&] { save_ops({op}); });
}

TEST(RecomputeAllTest, PrefersToRecomputeWhateverTheOp) {
  EXPECT_EQ(decide(recompute_all(), "aten::mm"), PREFER_RECOMPUTE);
  EXPECT_EQ(decide(recompute_all(), "aten::sin"), PREFER_RECOMPUTE);
  EXPECT_TRUE(enter_policy(recompute_all()).constant) << "asked op by op";
}

TEST(MustSaveAllTest, SavesWhateverTheOp) {
  EXPECT_EQ(decide(must_save_all(), "aten::mm"), MUST_SAVE);
  EXPECT_EQ(decide(must_save_all(), "aten::sin"), MUST_SAVE);
  EXPECT_TRUE(enter_policy(must_save_all()).constant) << "asked op by op";
}

TEST(SaveOpsTest, SavesTheListedOpsAndPrefersToRecomputeTheOthers) {
  const Policy policy = save_ops({"aten::mm", "aten::_softmax"});
  EXPECT_EQ(decide(policy, "aten::mm"), MUST_SAVE);
  EXPECT_EQ(decide(policy, "aten::_softmax"), MUST_SAVE);
  EXPECT_EQ(decide(policy, "aten::bmm"), PREFER_RECOMPUTE);
}

TEST(SaveOpsTest, TakesABareNameForEveryOverload) {
  const Policy policy = save_ops({"aten::add"});
  EXPECT_EQ(decide(policy, "aten::add", "Tensor"), MUST_SAVE);
  EXPECT_EQ(decide(policy, "aten::add", "Scalar"), MUST_SAVE);
}

TEST(SaveOpsTest, TakesANameWithAnOverloadForThatOneAlone) {
  const Policy policy = save_ops({"aten::add.Tensor", "aten::mul.Tensor", "aten::mul.Scalar"});
  EXPECT_EQ(decide(policy, "aten::add", "Tensor"), MUST_SAVE);
  EXPECT_EQ(decide(policy, "aten::add", "Scalar"), PREFER_RECOMPUTE);
  EXPECT_EQ(decide(policy, "aten::mul", "Tensor"), MUST_SAVE);
  EXPECT_EQ(decide(policy, "aten::mul", "Scalar"), MUST_SAVE);
}

TEST(SaveOpsTest, TakesTheBareNameWhereBothFormsAreListed) {
  for (const auto& ops : {std::vector<std::string>{"aten::add.Tensor", "aten::add"},
                          std::vector<std::string>{"aten::add", "aten::add.Tensor"}}) {
    EXPECT_EQ(decide(save_ops(ops), "aten::add", "Scalar"), MUST_SAVE);
  }
}

TEST(SaveOpsTest, DoesNotTakeAnOpForItsInPlaceForm) {
  const Policy policy = save_ops({"aten::relu"});
  EXPECT_EQ(decide(policy, "aten::relu"), MUST_SAVE);
  EXPECT_EQ(decide(policy, "aten::relu_"), PREFER_RECOMPUTE);
}

TEST(ListedOpsTest, AnEmptyListIsAnError) {
  const std::vector<std::string> none;
  const auto expect_error = [](const std::string& caller, const std::function<void()>& make) {
    try {
      make();
      FAIL() << caller;
    } catch (const c10::Error& error) {
      EXPECT_THAT(error.what_without_backtrace(), testing::HasSubstr(caller + " was given no op"));
    }
  };
  expect_error("save_ops", [&] { save_ops(none); });
  expect_error("recompute_ops", [&] { recompute_ops(none); });
  expect_error("offload_ops", [&] { offload_ops(none); });
  expect_error("quantize_ops", [&] { quantize_ops(none, 8); });
  expect_error("narrow_ops", [&] { narrow_ops(none, at::kBFloat16); });
}

TEST(SaveOpsTest, KnowsTheOpsThatTheProgramRegistered) {
  EXPECT_EQ(decide(save_ops({"ac2_policies_test::twice"}), "ac2_policies_test::twice"), MUST_SAVE);
}

TEST(SaveOpsTest, CoversAnOverloadThatIsRegisteredLater) {
  const Policy policy = save_ops({"ac2_policies_test::twice"});
  torch::Library late(torch::Library::FRAGMENT, "ac2_policies_test", {}, __FILE__, __LINE__);
  late.def("twice.late(Tensor x, int times) -> Tensor");
  EXPECT_EQ(decide(policy, "ac2_policies_test::twice", "late"), MUST_SAVE);
}

TEST(SaveOpsTest, RejectsAnUnknownOpAndSuggestsTheNearest) {
  EXPECT_THAT(save_ops_error("aten::mmm"), AllOf(HasSubstr("save_ops: no operator named \"aten::mmm\" is registered"),
                                                 HasSubstr("Did you mean"), HasSubstr("aten::mm")));
  EXPECT_THAT(save_ops_error("aten::_sofmax"), HasSubstr("Did you mean aten::_softmax"));
  EXPECT_THAT(save_ops_error("aten::native_layernorm"), HasSubstr("aten::native_layer_norm"));
}

TEST(SaveOpsTest, SuggestsTheOverloadTooWhereItExists) {
  EXPECT_THAT(save_ops_error("aten::hardsgmoid.out"), HasSubstr("Did you mean aten::hardsigmoid.out"));
}

TEST(SaveOpsTest, SuggestsNothingWhereNothingIsNear) {
  EXPECT_THAT(save_ops_error("my_library::fused_everything_forward"),
              AllOf(HasSubstr("my_library::fused_everything_forward"), HasSubstr("load that library before"),
                    Not(HasSubstr("Did you mean"))));
}

TEST(SaveOpsTest, RejectsAnUnknownOverloadAndListsTheKnownOnes) {
  EXPECT_THAT(save_ops_error("aten::add.Tensr"),
              AllOf(HasSubstr("\"aten::add\" has no overload \"Tensr\""), HasSubstr("\"Tensor\""),
                    HasSubstr("\"Scalar\""), HasSubstr("\"aten::add\" means all of them")));
  EXPECT_THAT(save_ops_error("aten::mm.Tensor"), HasSubstr("It has \"default\""));
  EXPECT_THAT(save_ops_error("aten::add.default"), HasSubstr("\"aten::add\" has no overload"));
}

TEST(SaveOpsTest, TakesTheOverloadWithoutANameByTheNameThatPythonGivesIt) {
  const Policy policy = save_ops({"aten::sum.default"});
  EXPECT_EQ(decide(policy, "aten::sum"), MUST_SAVE);
  EXPECT_EQ(decide(policy, "aten::sum", "dim_IntList"), PREFER_RECOMPUTE);
}

TEST(SaveOpsTest, RejectsANameWithoutANamespaceAndSaysHowItIsWritten) {
  EXPECT_THAT(save_ops_error("mm"), AllOf(HasSubstr("save_ops: \"mm\" is not an operator's name"),
                                          HasSubstr("\"aten::add.Tensor\""), HasSubstr("Did you mean aten::mm?")));
}

TEST(SaveOpsTest, UnderstandsPythonsSpellingEnoughToSuggest) {
  EXPECT_THAT(save_ops_error("aten.mm"), HasSubstr("Did you mean aten::mm?"));
  EXPECT_THAT(save_ops_error("torch.ops.aten.add.Tensor"), HasSubstr("Did you mean aten::add.Tensor?"));
}

TEST(SaveOpsTest, RejectsMalformedNames) {
  for (const char* name : {"", "::", "aten::", "::mm", "aten::mm.", "aten:mm", "aten::mm, aten::bmm", "aten:: mm",
                           "aten::mm(Tensor self, Tensor mat2)"}) {
    EXPECT_THAT(save_ops_error(name), HasSubstr("\"" + std::string(name) + "\" is not an operator's name"));
  }
}

TEST(SaveOpsTest, WarnsOnceOfAnOpThatTrainingNeverRuns) {
  const auto make = [] { save_ops({"aten::linear", "aten::mm"}); };
  EXPECT_THAT(warnings_of(make), ElementsAre(AllOf(HasSubstr("aten::linear"), HasSubstr("made of other operators"))));
  EXPECT_THAT(warnings_of(make), IsEmpty());
}

TEST(SaveOpsTest, TakesPatterns) {
  const Policy policy = save_ops({"aten::*mm*", "aten::add.*", "aten::m?l.Scalar", "aten::sin"});
  for (const char* op : {"aten::mm", "aten::bmm", "aten::addmm", "aten::addmm_", "aten::sin"}) {
    EXPECT_EQ(decide(policy, op), MUST_SAVE) << op;
  }
  EXPECT_EQ(decide(policy, "aten::add", "Tensor"), MUST_SAVE);
  EXPECT_EQ(decide(policy, "aten::mul", "Scalar"), MUST_SAVE);
  EXPECT_EQ(decide(policy, "aten::mul", "Tensor"), PREFER_RECOMPUTE);
  EXPECT_EQ(decide(policy, "aten::add_", "Tensor"), PREFER_RECOMPUTE);
  EXPECT_EQ(decide(policy, "aten::sinh"), PREFER_RECOMPUTE);
  EXPECT_EQ(decide(recompute_ops({"*::gelu"}), "aten::gelu"), MUST_RECOMPUTE);
}

TEST(SaveOpsTest, APatternCoversAnOperatorThatIsRegisteredLater) {
  const Policy policy = save_ops({"ac2_policies_test::tw*"});
  torch::Library late(torch::Library::FRAGMENT, "ac2_policies_test", {}, __FILE__, __LINE__);
  late.def("twofold(Tensor x) -> Tensor");
  EXPECT_EQ(decide(policy, "ac2_policies_test::twofold"), MUST_SAVE);
}

TEST(SaveOpsTest, RejectsAPatternThatMatchesNothingAndSuggestsTheNearest) {
  EXPECT_THAT(save_ops_error("aten::_sofmax*"),
              AllOf(HasSubstr("save_ops: no operator matches the pattern \"aten::_sofmax*\""),
                    HasSubstr("Did you mean"), HasSubstr("aten::_softmax")));
  EXPECT_THAT(save_ops_error("aten::*layernorm"), HasSubstr("layer_norm"));
  EXPECT_THAT(save_ops_error("aten::add.Tens?"), HasSubstr("no operator matches"));
  EXPECT_THAT(save_ops_error("my_library::*everything"), Not(HasSubstr("Did you mean")));
  EXPECT_THAT(save_ops_error("*mm*"), HasSubstr("is not an operator's name"));
}

TEST(SaveOpsTest, APatternDrawsNoWarningOfWhatItCovers) {
  EXPECT_THAT(warnings_of([] { save_ops({"aten::conv2*"}); }), IsEmpty());
}

TEST(RecomputeOpsTest, RecomputesTheListedOpsAndPrefersToSaveTheOthers) {
  const Policy policy = recompute_ops({"aten::gelu", "aten::add.Tensor"});
  EXPECT_EQ(decide(policy, "aten::gelu"), MUST_RECOMPUTE);
  EXPECT_EQ(decide(policy, "aten::add", "Tensor"), MUST_RECOMPUTE);
  EXPECT_EQ(decide(policy, "aten::add", "Scalar"), PREFER_SAVE);
  EXPECT_EQ(decide(policy, "aten::mm"), PREFER_SAVE);
}

TEST(RecomputeOpsTest, RejectsAnUnknownOpAndSuggestsTheNearest) {
  EXPECT_THAT(error_of([] {
                recompute_ops({"aten::gelu", "aten::dropuot"});
              }),
              AllOf(HasSubstr("recompute_ops: no operator named \"aten::dropuot\""), HasSubstr("aten::dropout")));
}

TEST(SaveComputeIntensiveTest, SavesProductsConvolutionsAndAttention) {
  const Policy policy = save_compute_intensive();
  for (const char* op : {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::mv", "aten::convolution",
                         "aten::mkldnn_convolution", "aten::cudnn_convolution", "aten::linear", "aten::matmul",
                         "aten::_scaled_mm", "aten::_scaled_dot_product_flash_attention_for_cpu",
                         "aten::_scaled_dot_product_efficient_attention", "aten::scaled_dot_product_attention"}) {
    EXPECT_EQ(decide(policy, op), MUST_SAVE) << op;
  }
}

TEST(SaveComputeIntensiveTest, PrefersToRecomputeTheRest) {
  const Policy policy = save_compute_intensive();
  for (const char* op : {"aten::gelu", "aten::native_layer_norm", "aten::native_dropout", "aten::relu_",
                         "aten::native_batch_norm", "aten::_softmax", "aten::embedding"}) {
    EXPECT_EQ(decide(policy, op), PREFER_RECOMPUTE) << op;
  }
}

TEST(SlowOpsTest, AreOpsThatExist) {
  std::set<std::string> registered;
  for (const c10::OperatorName& op : c10::Dispatcher::singleton().getAllOpNames()) {
    registered.insert(op.name);
  }
  // Not in all versions of LibTorch; the first is gone from 2.14 on, the others came after 2.7.
  const std::set<std::string> not_everywhere = {
      "aten::cholesky",      "aten::_cudnn_attention_backward",
      "aten::_grouped_mm",   "aten::_scaled_grouped_mm_v2",
      "aten::_scaled_mm_v2", "aten::_weight_int4pack_mm_with_scales_and_zeros",
  };
  for (const std::string& op : slow_ops()) {
    EXPECT_TRUE(registered.contains(op) || not_everywhere.contains(op)) << op;
  }
}

TEST(SlowOpsTest, AreListedOnceAndAreTheComputeIntensiveOnesAndMore) {
  const std::vector<std::string>& ops = slow_ops();
  const std::set<std::string> all(ops.begin(), ops.end());
  EXPECT_EQ(all.size(), ops.size());
  EXPECT_GT(all.size(), compute_intensive_ops().size());
  for (const std::string& op : compute_intensive_ops()) {
    EXPECT_TRUE(all.contains(op)) << op;
  }
}

TEST(SlowOpsTest, HaveWhatPyTorchsPartitionerCallsComputeIntensive) {
  const std::vector<std::string>& ops = slow_ops();
  const std::set<std::string> slow(ops.begin(), ops.end());
  for (const char* op :
       {"mm", "convolution", "convolution_backward", "bmm", "addmm", "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_efficient_attention", "_flash_attention_forward", "_efficient_attention_forward",
        "upsample_bilinear2d", "_scaled_mm"}) {
    EXPECT_TRUE(slow.contains(std::string("aten::") + op)) << op;
    EXPECT_EQ(decide(save_compute_intensive(), (std::string("aten::") + op).c_str()),
              op == std::string("upsample_bilinear2d") ? PREFER_RECOMPUTE : MUST_SAVE)
        << op;
  }
}

TEST(SpeedTest, SavesWhatIsSlowAndPrefersToRecomputeTheRest) {
  for (const char* op : {"aten::mm", "aten::convolution", "aten::_scaled_dot_product_flash_attention_for_cpu",
                         "aten::_linalg_svd", "aten::_fft_r2c", "aten::sort", "aten::upsample_bilinear2d"}) {
    EXPECT_EQ(decide(speed(), op), MUST_SAVE) << op;
  }
  for (const char* op : {"aten::gelu", "aten::native_layer_norm", "aten::_softmax", "aten::embedding"}) {
    EXPECT_EQ(decide(speed(), op), PREFER_RECOMPUTE) << op;
  }
}

TEST(DotsSaveableTest, SavesProductsAndConvolutionsAndNoAttention) {
  for (const Policy& policy : {dots_saveable(), checkpoint_dots()}) {
    for (const char* op : {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::convolution"}) {
      EXPECT_EQ(decide(policy, op), MUST_SAVE) << op;
    }
    for (const char* op : {"aten::_scaled_dot_product_flash_attention_for_cpu", "aten::gelu", "aten::_softmax"}) {
      EXPECT_EQ(decide(policy, op), PREFER_RECOMPUTE) << op;
    }
  }
}

TEST(DotsSaveableTest, WithNoBatchDimsSavesProductsOfMatricesAlone) {
  for (const Policy& policy : {dots_with_no_batch_dims_saveable(), checkpoint_dots_with_no_batch_dims()}) {
    for (const char* op : {"aten::mm", "aten::addmm", "aten::mv"}) {
      EXPECT_EQ(decide(policy, op), MUST_SAVE) << op;
    }
    for (const char* op : {"aten::bmm", "aten::baddbmm", "aten::convolution", "aten::gelu"}) {
      EXPECT_EQ(decide(policy, op), PREFER_RECOMPUTE) << op;
    }
  }
}

TEST(OffloadOpsTest, OffloadsTheListedOpsAndRecomputesTheOthers) {
  const Policy policy = offload_ops({"aten::mm", "aten::*_softmax"});
  EXPECT_EQ(decide(policy, "aten::mm"), MUST_CPU_OFFLOAD);
  EXPECT_EQ(decide(policy, "aten::_log_softmax"), MUST_CPU_OFFLOAD);
  EXPECT_EQ(decide(policy, "aten::bmm"), PREFER_RECOMPUTE);
  EXPECT_EQ(policy.name(), "offload_ops");
  EXPECT_THAT(error_of([] { offload_ops({"aten::mmm"}); }),
              AllOf(HasSubstr("offload_ops: no operator named \"aten::mmm\""), HasSubstr("aten::mm")));
}

TEST(DotsSaveableTest, OffloadsProductsOfMatricesAlone) {
  const Policy policy = offload_dot_with_no_batch_dims();
  EXPECT_EQ(decide(policy, "aten::addmm"), MUST_CPU_OFFLOAD);
  EXPECT_EQ(decide(policy, "aten::bmm"), PREFER_RECOMPUTE);
}

TEST(SaveableTest, IsAllOrNothing) {
  EXPECT_EQ(enter_policy(everything_saveable()).constant, PolicyDecision(MUST_SAVE));
  EXPECT_EQ(enter_policy(nothing_saveable()).constant, PolicyDecision(PREFER_RECOMPUTE));
}

TEST(BySizeTest, RejectsANegativeSize) {
  EXPECT_THAT(error_of([] { by_size(-1); }), AllOf(HasSubstr("by_size"), HasSubstr("-1"), HasSubstr("0 or more")));
}

TEST(EveryNthTest, RejectsAListWithAnUnknownOpAndAnEmptyOne) {
  EXPECT_THAT(error_of([] { every_nth(2, {"aten::mmm"}); }), AllOf(HasSubstr("every_nth"), HasSubstr("aten::mm")));
  EXPECT_THAT(error_of([] { every_nth(2, {}); }), HasSubstr("empty list"));
}

TEST(PolicyByNameTest, KnowsThoseWithoutParametersAndRejectsOthers) {
  for (const std::string& name : policy_names()) {
    EXPECT_EQ(enter_policy(policy_by_name(name)).name, name);
  }
  EXPECT_EQ(std::set<std::string>(policy_names().begin(), policy_names().end()).size(), policy_names().size());
  EXPECT_EQ(decide(policy_by_name("speed"), "aten::_linalg_svd"), MUST_SAVE);
  EXPECT_EQ(decide(policy_by_name("dots_saveable"), "aten::_linalg_svd"), PREFER_RECOMPUTE);
  EXPECT_THAT(error_of([] { policy_by_name("sped"); }),
              AllOf(HasSubstr("Unknown policy \"sped\""),
                    HasSubstr("recompute_all, save_compute_intensive, must_save_all, speed")));
}

TEST(EveryNthTest, RejectsWhatIsNotPositive) {
  EXPECT_THAT(error_of([] { every_nth(0); }), AllOf(HasSubstr("every_nth"), HasSubstr("0"), HasSubstr("1")));
}

}  // namespace
}  // namespace ac2::policies
