// by_module: which module an op belongs to, which rule decides for it, and what a region then holds and replays.
#include <torch/torch.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ac2/ac2.h"
#include "ac2/internal/modules/module_path.h"
#include "ac2/policy_instance.h"
#include "policies/policies.h"
#include "tests/support/regions.h"
#include "tests/support/warnings.h"

namespace ac2::test {
namespace {

using enum CheckpointPolicy;
using policies::by_module;
using Rules = std::vector<std::pair<std::string, PolicyDecision>>;
using ByModuleTest = CleanTest;

constexpr int64_t kRows = 4, kWidth = 8, kHidden = 32;
// A region that saves the product of `up` holds no bias of it, which nothing but the product takes.
constexpr int64_t kBytesOfUp = (kRows * kHidden - kHidden) * 4;

struct MlpImpl : torch::nn::Module {
  MlpImpl() {
    register_module("up", up);
    register_module("down", down);
  }
  at::Tensor forward(const at::Tensor& x) { return down->forward(at::gelu(up->forward(x))); }

  torch::nn::Linear up{kWidth, kHidden}, down{kHidden, kWidth};
};
TORCH_MODULE(Mlp);

struct BlockImpl : torch::nn::Module {
  BlockImpl() {
    register_module("norm", norm);
    register_module("mlp", mlp);
  }
  at::Tensor forward(const at::Tensor& x) { return x + mlp->forward(norm->forward(x)); }

  torch::nn::LayerNorm norm{torch::nn::LayerNormOptions({kWidth})};
  Mlp mlp;
};
TORCH_MODULE(Block);

// Its forward calls the blocks by their type.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(int count) {
    for (int i = 0; i < count; ++i) layers->push_back(Block());
    register_module("layers", layers);
    register_module("head", head);
  }
  at::Tensor forward(at::Tensor x) {
    for (size_t i = 0; i < layers->size(); ++i) x = layers->at<BlockImpl>(i).forward(x);
    return head->forward(x).tanh();
  }

  torch::nn::ModuleList layers;
  torch::nn::Linear head{kWidth, kWidth};
};
TORCH_MODULE(Net);

struct Step {
  Tensors gradients;
  int64_t saved_bytes = 0;
  int64_t recomputed_ops = 0;
};

// A step of `model` on fixed numbers, in a region if there is a policy.
template <class Model>
Step step_of(Model& model, const Policy* policy) {
  Step step;
  model->zero_grad();
  const at::Tensor x = at::arange(kRows * kWidth, at::kFloat).view({kRows, kWidth}).sin().requires_grad_();
  std::shared_ptr<const Trace> trace;
  at::Tensor loss;
  {
    std::optional<PolicyScope> scope;
    if (policy != nullptr) trace = scope.emplace(*policy).trace();
    loss = model->forward(x).sum();
  }
  if (trace) step.saved_bytes = trace->stats().saved_bytes;
  loss.backward();
  if (trace) step.recomputed_ops = trace->stats().recomputed_ops;
  step.gradients.push_back(x.grad());
  for (const at::Tensor& parameter : model->parameters()) step.gradients.push_back(parameter.grad().clone());
  return step;
}

// Of a step under `policy`, against one in which all is recomputed.
struct Change {
  int64_t more_bytes = 0;
  int64_t fewer_ops = 0;
  friend bool operator==(const Change&, const Change&) = default;
};

template <class Model>
Change change_by(Model& model, const Policy& policy) {
  const Policy recompute = "recompute_all";
  const Step plain = step_of(model, nullptr), without = step_of(model, &recompute), with = step_of(model, &policy);
  expect_same_bits(without.gradients, plain.gradients, "gradient, recomputed");
  expect_same_bits(with.gradients, plain.gradients, "gradient");
  return {with.saved_bytes - without.saved_bytes, without.recomputed_ops - with.recomputed_ops};
}

// The ops that a region under `policy` saves, in order.
std::vector<std::string> saved_ops(const Policy& policy, const std::function<void()>& fn) {
  std::vector<std::string> saved;
  const PolicyInstance instance = enter_policy(policy);
  const PolicyScope scope([&](const OpContext& op) {
    const PolicyDecision decision = instance.decide(op);
    if (decision.saves()) saved.emplace_back(op.name());
    return decision;
  });
  fn();
  return saved;
}

using Names = std::vector<std::string>;

TEST(PathPatternTest, MatchesComponentsAndNotPartsOfThem) {
  using ac2::internal::PathPattern;
  EXPECT_TRUE(PathPattern("layers.*.mlp").matches("layers.10.mlp"));
  EXPECT_FALSE(PathPattern("layers.*.mlp").matches("layers.1.2.mlp"));
  EXPECT_FALSE(PathPattern("layers").matches("layers_of"));
  EXPECT_TRUE(PathPattern("layer?").matches("layers"));
  EXPECT_TRUE(PathPattern("**.mlp").matches("a.b.mlp"));
  EXPECT_TRUE(PathPattern("**.mlp").matches("mlp"));
  EXPECT_FALSE(PathPattern("layers.*.mlp").matches("layers.0.mlp.act"));
  EXPECT_TRUE(PathPattern("layers.*.mlp").matches_around("layers.0.mlp.act"));
  EXPECT_FALSE(PathPattern("layers.*.mlp").matches_around("layers.0"));
  EXPECT_TRUE(PathPattern("").matches(""));
  EXPECT_FALSE(PathPattern("").matches("layers"));
  EXPECT_TRUE(PathPattern("").matches_around("layers"));
  EXPECT_TRUE(PathPattern("**").matches(""));
}

TEST_F(ByModuleTest, SavesTheResultsOfModulesByTheParametersThatTheirOpsTake) {
  Net net(2);
  // Of each block the product of `up`.
  EXPECT_EQ(change_by(net, by_module({{"layers.*.mlp.up", MUST_SAVE}}, net->named_parameters())),
            (Change{2 * kBytesOfUp, 2}));
  EXPECT_EQ(change_by(net, by_module({{"layers.1.mlp.up", MUST_SAVE}}, net->named_parameters())),
            (Change{kBytesOfUp, 1}));
}

TEST_F(ByModuleTest, AnOpThatTakesNoParameterBelongsToTheModuleAroundThatOfTheLastOpThatTookOne) {
  Net net(2);
  const auto policy = [&](const char* pattern) { return by_module({{pattern, MUST_SAVE}}, net->named_parameters()); };
  const at::Tensor x = at::ones({kRows, kWidth}).requires_grad_();
  const auto forward = [&] { net->forward(x); };
  EXPECT_EQ(saved_ops(policy("layers.*.mlp :: aten.gelu"), forward), (Names{"aten::gelu", "aten::gelu"}));
  EXPECT_EQ(saved_ops(policy("layers.*.mlp.up :: aten.gelu"), forward), Names{});
  // The sum of a block comes behind `down`, and belongs to `mlp` for all that is known.
  EXPECT_EQ(saved_ops(policy("layers.0.mlp"), forward),
            (Names{"aten::addmm", "aten::gelu", "aten::addmm", "aten::add"}));
  EXPECT_EQ(saved_ops(policy("head"), forward), Names{"aten::addmm"});
  EXPECT_EQ(saved_ops(policy(" :: aten.tanh"), forward), Names{"aten::tanh"});
}

TEST_F(ByModuleTest, TheFirstRuleThatMatchesDecides) {
  Net net(2);
  const Policy policy = by_module({{"layers.0.mlp :: aten::addmm", PREFER_RECOMPUTE},
                                   {"layers.*.mlp :: aten.addmm.default", MUST_SAVE},
                                   {"layers.1 :: aten.*norm*", MUST_SAVE},
                                   {"head", false}},
                                  net->named_parameters());
  const at::Tensor x = at::ones({kRows, kWidth}).requires_grad_();
  EXPECT_EQ(saved_ops(policy, [&] { net->forward(x); }),
            (Names{"aten::native_layer_norm", "aten::addmm", "aten::addmm"}));
}

TEST_F(ByModuleTest, KnowsWrappedModulesByTheirNamesAndClasses) {
  torch::nn::Sequential model;
  for (int i = 0; i < 3; ++i) model->push_back(Block());
  const auto policy_of = [](Rules rules) { return by_module(rules); };
  const auto apply = [&](const Policy& policy) { apply_checkpointing(model, {.modules = {"*"}, .policy = policy}); };
  const at::Tensor x = at::ones({kRows, kWidth}).requires_grad_();
  const auto saved_in = [&](Rules rules) {
    int64_t bytes = 0;
    apply(policy_of(std::move(rules)));
    const at::Tensor y = model->forward(x);
    for (const char* name : {"0", "1", "2"}) {
      bytes += find_checkpointing(*model, name)->last_trace()->stats().saved_bytes;
    }
    return bytes;
  };
  const int64_t nothing = saved_in({{"1", PREFER_RECOMPUTE}});
  EXPECT_EQ(saved_in({{"1 :: aten.addmm", MUST_SAVE}}), nothing + kBytesOfUp);
  EXPECT_EQ(saved_in({{"[02] :: aten.addmm", MUST_SAVE}}), nothing + 2 * kBytesOfUp);
  EXPECT_EQ(saved_in({{"Block :: aten.addmm", MUST_SAVE}}), nothing + 3 * kBytesOfUp);
  EXPECT_EQ(saved_in({{"BlockImpl :: aten.addmm", MUST_SAVE}}), nothing + 3 * kBytesOfUp);
  EXPECT_EQ(saved_in({{"1", PREFER_RECOMPUTE}, {"** :: aten.addmm", MUST_SAVE}}), nothing + 2 * kBytesOfUp);
  remove_checkpointing(*model);
}

TEST_F(ByModuleTest, KnowsAModuleThatIsSwitchedOffInARegionAroundIt) {
  auto mlp = ac2::checkpoint_wrapper(Mlp());
  mlp->checkpointing().set_on(false);
  EXPECT_EQ(change_by(mlp, by_module({{"Mlp :: aten.addmm", MUST_SAVE}})), (Change{kBytesOfUp, 1}));
  const at::Tensor x = at::ones({kRows, kWidth}).requires_grad_();
  const auto forward = [&] { mlp->forward(x.sin()); };
  EXPECT_EQ(saved_ops(by_module({{"Mlp", MUST_SAVE}}), forward), (Names{"aten::addmm", "aten::gelu", "aten::addmm"}));
  EXPECT_EQ(saved_ops(by_module({{"**", MUST_SAVE}}), forward),
            (Names{"aten::sin", "aten::addmm", "aten::gelu", "aten::addmm"}));
}

TEST_F(ByModuleTest, LeavesAModuleWhoseForwardFails) {
  struct FailingImpl : torch::nn::Module {
    at::Tensor forward(const at::Tensor& x) {
      if (fails) throw std::runtime_error("as asked");
      return x.sin();
    }
    bool fails = true;
  };
  auto failing = ac2::checkpoint_wrapper(std::make_shared<FailingImpl>());
  failing->checkpointing().set_on(false);
  const Policy policy = by_module({{"Failing", MUST_SAVE}});
  const at::Tensor x = at::ones({kRows}).requires_grad_();
  EXPECT_THROW(failing->forward(x), std::runtime_error);
  EXPECT_EQ(saved_ops(policy, [&] { x.cos(); }), Names{});
  failing->fails = false;
  EXPECT_EQ(saved_ops(policy, [&] { failing->forward(x.cos()); }), Names{"aten::sin"});
}

TEST_F(ByModuleTest, EachThreadIsInItsOwnModules) {
  auto mlp = ac2::checkpoint_wrapper(Mlp());
  mlp->checkpointing().set_on(false);
  const Policy policy = by_module({{"Mlp", MUST_SAVE}});
  std::vector<Names> saved(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < saved.size(); ++i) {
    threads.emplace_back([&, i] {
      const at::Tensor x = at::ones({kRows, kWidth}).requires_grad_();
      saved[i] = saved_ops(policy, [&] { i % 2 == 0 ? mlp->forward(x) : x.sin(); });
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < saved.size(); ++i) {
    EXPECT_EQ(saved[i], i % 2 == 0 ? (Names{"aten::addmm", "aten::gelu", "aten::addmm"}) : Names{});
  }
}

TEST_F(ByModuleTest, ADecisionMayBeAForm) {
  Net net(1);
  const auto narrow = forms::narrow(at::kBFloat16);
  const PolicyInstance instance =
      enter_policy(by_module({{"layers.0.mlp.up", narrow}, {"head", true}}, net->named_parameters()));
  std::vector<PolicyDecision> decided;
  {
    const PolicyScope scope([&](const OpContext& op) {
      if (op.is("aten::addmm")) decided.push_back(instance.decide(op));
      return PREFER_RECOMPUTE;
    });
    net->forward(at::ones({kRows, kWidth}).requires_grad_());
  }
  EXPECT_EQ(decided, (std::vector<PolicyDecision>{narrow, PREFER_RECOMPUTE, MUST_SAVE}));
}

TEST_F(ByModuleTest, ComposesWithOtherPolicies) {
  Net net(2);
  const Policy up = by_module({{"layers.*.mlp.up", MUST_SAVE}}, net->named_parameters());
  const at::Tensor x = at::ones({kRows, kWidth}).requires_grad_();
  const auto forward = [&] { net->forward(x); };
  EXPECT_EQ(saved_ops(policies::first_of({up, policies::save_ops({"aten::tanh"})}), forward),
            (Names{"aten::addmm", "aten::addmm", "aten::tanh"}));
  EXPECT_EQ(
      saved_ops(policies::per_op_override(up, {{"aten::addmm", PREFER_RECOMPUTE}, {"aten::gelu", MUST_SAVE}}), forward),
      (Names{"aten::gelu", "aten::gelu"}));
  EXPECT_EQ(up.name(), "by_module");
}

TEST_F(ByModuleTest, KeepsNoParameterAlive) {
  Net net(1);
  const auto weak = net->head->weight.storage().getWeakStorageImpl();
  const Policy policy = by_module({{"head", MUST_SAVE}}, net->named_parameters());
  net = nullptr;
  EXPECT_TRUE(weak.expired());
  const at::Tensor x = at::ones({kRows, kWidth}).requires_grad_();
  EXPECT_EQ(saved_ops(policy, [&] { x.mm(at::ones({kWidth, kWidth})); }), Names{});
}

TEST_F(ByModuleTest, RefusesMalformedRulesAndNamesThePattern) {
  const auto make = [](Rules rules) { return [rules] { by_module(rules); }; };
  expect_error(make({}), {"by_module was given no rule"});
  expect_error(make({{"mlp :: ", true}}), {"\"mlp :: \" has no op behind \"::\"", "expected"});
  expect_error(make({{"::", true}}), {"\"::\" has no op"});
  expect_error(make({{"mlp :: aten.mm :: aten.mm", true}}), {"has \" :: \" 2 times"});
  expect_error(make({{"aten::mm", true}}), {"\"aten::mm\"", "\"** :: aten::mm\""});
  expect_error(make({{"layers..mlp", true}}), {"\"layers..mlp\" has an empty component"});
  expect_error(make({{"layers.mlp.", true}}), {"has an empty component"});
  expect_error(make({{"layers.**mlp", true}}), {"\"**\" in the component \"**mlp\""});
  expect_error(make({{"layers mlp", true}}), {"\"layers mlp\" is no module's name"});
  expect_error(make({{"mlp :: aten.gelo", true}}), {"mlp :: aten.gelo", "Did you mean aten::gelu"});
  expect_error(make({{"mlp :: gelu", true}}), {"mlp :: gelu", "Did you mean aten::gelu"});
  expect_error(make({{"mlp", true}, {"mlp", false}}), {"the pattern \"mlp\" twice"});
  expect_error(make({{"mlp :: aten.mm", true}, {"mlp::aten.mm", false}}), {"without a space on both sides"});
  expect_error(make({{"mlp :: aten.mm", true}, {" mlp  ::  aten::mm", false}}), {"twice"});
}

TEST_F(ByModuleTest, APatternThatMatchesNoModuleOfAKnownModelIsAnErrorWithTheNearestNames) {
  Net net(12);
  const auto make = [&](const char* pattern) {
    return [&, pattern] { by_module({{"head", true}, {pattern, true}}, net->named_parameters()); };
  };
  expect_error(make("layers.*.mpl.up"),
               {"\"layers.*.mpl.up\" matches no module of the model", "Did you mean layers.*.mlp.up"});
  expect_error(make("layers.12.mlp"), {"Did you mean layers.1.mlp, layers.10.mlp, layers.11.mlp?"});
  expect_error(make("encoder.everything"), {"Modules there: \"head\", \"layers\", \"layers.*\", \"layers.*.mlp\""});
  expect_error([&] { by_module({{"head", true}}, torch::OrderedDict<std::string, at::Tensor>()); }, {"no parameter"});
  make("**")();
  make("")();
  make("layers.*")();
}

TEST_F(ByModuleTest, WarnsOnceOfAPatternThatMatchesNoModuleThatWasSeen) {
  torch::nn::Sequential model;
  for (int i = 0; i < 2; ++i) model->push_back(Block());
  const at::Tensor x = at::ones({kRows, kWidth}).requires_grad_();
  const auto train = [&](const Policy& policy) {
    apply_checkpointing(model, {.modules = {"*"}, .policy = policy});
    return warnings_of([&] {
      for (int i = 0; i < 2; ++i) model->forward(x);
    });
  };
  const std::vector<std::string> warnings = train(by_module({{"1", MUST_SAVE}, {"Blok", MUST_SAVE}}));
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("\"Blok\" matches no module that was there"), std::string::npos) << warnings[0];
  EXPECT_NE(warnings[0].find("Did you mean Block?"), std::string::npos) << warnings[0];
  EXPECT_TRUE(train(by_module({{"1", MUST_SAVE}, {"Block", MUST_SAVE}, {"**", true}, {"", true}})).empty());
  remove_checkpointing(*model);
}

TEST_F(ByModuleTest, WarnsThatNoModuleIsKnownWhereNothingIsWrapped) {
  Net net(1);
  const at::Tensor x = at::ones({kRows, kWidth}).requires_grad_();
  const std::vector<std::string> warnings = warnings_of([&] {
    const PolicyScope scope(by_module({{"layers.*", MUST_SAVE}, {"**", true}}));
    net->forward(x);
  });
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("named_parameters()"), std::string::npos) << warnings[0];
}

TEST_F(ByModuleTest, ARegionThatAnExceptionEndsWarnsOfNothing) {
  const at::Tensor x = at::ones({kRows}).requires_grad_();
  const Policy policy = by_module({{"layers", MUST_SAVE}});
  const auto fail = [&] {
    const PolicyScope scope(policy);
    x.sin();
    throw std::runtime_error("as asked");
  };
  EXPECT_TRUE(warnings_of([&] { EXPECT_THROW(fail(), std::runtime_error); }).empty());
  const auto succeed = [&] {
    const PolicyScope scope(policy);
    x.sin();
  };
  EXPECT_EQ(warnings_of(succeed).size(), 1U);
}

}  // namespace
}  // namespace ac2::test
