// Checkpointing switched on from outside: the same bits, in exactly the modules that were asked for.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "ac2/ac2.h"
#include "policies/policies.h"
#include "tests/support/modules.h"

namespace ac2::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using torch::nn::Sequential;

using ApplyCheckpointingTest = CleanTest;
using Names = std::vector<std::string>;

struct BlockImpl : torch::nn::Cloneable<BlockImpl> {
  explicit BlockImpl(int64_t dim) : dim(dim) { reset(); }
  void reset() override {
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({dim})));
    up = register_module("up", torch::nn::Linear(dim, 2 * dim));
    down = register_module("down", torch::nn::Linear(2 * dim, dim));
  }
  at::Tensor forward(at::Tensor x, double scale = 1.0) {
    if (fails) throw std::runtime_error("block failed");
    ++calls;
    regions += is_checkpoint_enabled() ? 1 : 0;
    return x + scale * down->forward(at::dropout(at::gelu(up->forward(norm->forward(x))), 0.1, is_training()));
  }
  int64_t dim;
  int calls = 0, regions = 0;
  bool fails = false;
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear up{nullptr}, down{nullptr};

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(1.0)})
};
TORCH_MODULE(Block);

// A model as users write it: a Sequential of blocks, and members called by their type.
struct ModelImpl : torch::nn::Cloneable<ModelImpl> {
  ModelImpl() { reset(); }
  void reset() override {
    embed = register_module("embed", torch::nn::Linear(4, 8));
    blocks = register_module("blocks", Sequential());
    for (int i = 0; i < 5; ++i) blocks->push_back(Block(8));
    list = register_module("list", torch::nn::ModuleList(torch::nn::Linear(8, 8)));
    head = register_module("head", Checkpointed<torch::nn::Linear>(8, 2));
    head->checkpointing().set_on(false);
  }
  at::Tensor forward(const at::Tensor& x) {
    return head->forward(list->at<torch::nn::LinearImpl>(0).forward(blocks->forward(embed->forward(x))));
  }
  BlockImpl& block(size_t i) { return *blocks->ptr(i)->as<Block>(); }
  std::vector<int> regions() {
    std::vector<int> result;
    for (size_t i = 0; i < blocks->size(); ++i) result.push_back(block(i).regions);
    return result;
  }
  torch::nn::Linear embed{nullptr};
  Sequential blocks{nullptr};
  torch::nn::ModuleList list{nullptr};
  Checkpointed<torch::nn::Linear> head{nullptr};
};
TORCH_MODULE(Model);

template <class Holder>
void expect_same_training_when_applied(const std::function<Holder()>& make, const CheckpointSpec& spec,
                                       const std::function<Tensors(Holder&, const Tensors&)>& forward,
                                       const Tensors& inputs) {
  const Training plain = train<Holder>(make, forward, inputs, nullptr, nullptr);
  const Training actual = train<Holder>(
      [&] {
        Holder model = make();
        EXPECT_FALSE(apply_checkpointing(model, spec).empty());
        return model;
      },
      forward, inputs, nullptr, nullptr);
  expect_same_bits(actual.outputs, plain.outputs, "output");
  expect_same_bits(actual.parameter_gradients, plain.parameter_gradients, "parameter gradient");
  expect_same_bits(actual.input_gradients, plain.input_gradients, "input gradient");
  expect_same_bits(actual.buffers_after_backward, plain.buffers_after_backward, "buffer");
  EXPECT_TRUE(same_bits(actual.generator, plain.generator));
  expect_nothing_left();
}

template <class Holder>
Tensors forward_one(Holder& model, const Tensors& in) {
  return {model->forward(in[0])};
}

TEST_F(ApplyCheckpointingTest, TrainsTheSame) {
  for (const ModuleSelector& selector : {ModuleSelector("blocks.*"), ModuleSelector("blocks.*").every(2),
                                         ModuleSelector("head"), ModuleSelector::type<Block>()}) {
    for (const Policy& policy : {Policy("recompute_all"), policies::save_compute_intensive()}) {
      expect_same_training_when_applied<Model>([] { return Model(); }, {.modules = {selector}, .policy = policy},
                                               forward_one<Model>, {sample({3, 4})});
    }
  }
}

TEST_F(ApplyCheckpointingTest, EverySecondBlockRunsInARegion) {
  Model model;
  EXPECT_EQ(apply_checkpointing(model, {.modules = {ModuleSelector("blocks.*").every(2)}}),
            (Names{"blocks.0", "blocks.2", "blocks.4"}));
  at::Tensor y = model->forward(constant({3, 4}));
  EXPECT_EQ(model->regions(), (std::vector<int>{1, 0, 1, 0, 1}));
  auto trace = find_checkpointing(*model, "blocks.2")->last_trace();
  EXPECT_EQ(find_checkpointing(*model, "blocks.1"), nullptr);
  const int64_t parameters = 8 + 8 + 16 * 8 + 16 + 8 * 16 + 8;
  // The block's input and parameters; the generator's state is no tensor. Biases are not needed to go back.
  EXPECT_LE(trace->stats().saved_bytes, (3 * 8 + parameters) * 4);
  EXPECT_GT(trace->stats().saved_bytes, 0);
  y.sum().backward();
  EXPECT_GT(trace->stats().recomputed_ops, 0);
  EXPECT_EQ(trace->stats().saved_bytes, 0);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(model->block(i).calls, 1);
}

TEST_F(ApplyCheckpointingTest, PicksByPattern) {
  Model model;
  const auto picked = [&](std::vector<ModuleSelector> selectors) {
    return apply_checkpointing(model, {.modules = std::move(selectors), .skip_unreachable = true});
  };
  EXPECT_EQ(picked({"blocks.[13]"}), (Names{"blocks.1", "blocks.3"}));
  EXPECT_EQ(picked({"blocks.?", "head"}), (Names{"blocks.0", "blocks.1", "blocks.2", "blocks.3", "blocks.4", "head"}));
  EXPECT_EQ(picked({"**.3"}), (Names{"blocks.3"}));
  EXPECT_EQ(picked({"h*"}), (Names{"head"}));
  EXPECT_EQ(picked({"**"}).size(), 6U);
  EXPECT_EQ(picked({ModuleSelector("blocks.*").every(3, 1)}), (Names{"blocks.1", "blocks.4"}));
  EXPECT_EQ(picked({ModuleSelector(
                [](const std::string& name, const torch::nn::Module& module) {
                  return name != "blocks.0" && module.as<Block>() != nullptr;
                },
                "of mine")}),
            (Names{"blocks.1", "blocks.2", "blocks.3", "blocks.4"}));
  EXPECT_EQ(picked({"*"}), (Names{"head"}));  // one part: not the blocks inside `blocks`
  EXPECT_EQ(picked({"**.up"}), Names{});
}

TEST_F(ApplyCheckpointingTest, NamesModulesAndArchivesStay) {
  Model model, plain;
  apply_checkpointing(model, {.modules = {"blocks.*", "head"}});
  EXPECT_EQ(model->named_parameters().keys(), plain->named_parameters().keys());
  EXPECT_EQ(model->named_modules().keys(), plain->named_modules().keys());
  EXPECT_NE(model->blocks[0]->as<Block>(), nullptr);
  std::stringstream archive, printed, expected;
  torch::save(model, archive);
  torch::load(plain, archive);
  expect_same_bits(plain->parameters(), model->parameters(), "parameter");
  printed << *model;
  expected << *plain;
  EXPECT_EQ(printed.str(), expected.str());
  model->eval();
  EXPECT_FALSE(model->block(1).is_training());
  model->to(at::kDouble);
  EXPECT_EQ(model->forward(constant({3, 4}, at::kDouble)).scalar_type(), at::kDouble);
  expect_error([&] { model->blocks->at<BlockImpl>(0); }, {"Attempted to cast module", "BlockImpl"});
}

TEST_F(ApplyCheckpointingTest, AnEntryTakesItsArgumentsAndDefaults) {
  Sequential model(Block(4), torch::nn::LSTM(4, 3));
  Sequential plain(model->ptr<BlockImpl>(0), model->ptr<torch::nn::LSTMImpl>(1));
  plain->eval();
  apply_checkpointing(model, {.modules = {"*"}});
  using Result = std::tuple<at::Tensor, std::tuple<at::Tensor, at::Tensor>>;
  at::Tensor x = sample({5, 2, 4});
  auto y = model->forward<Result>(x, 0.5);
  EXPECT_TRUE(same_bits(std::get<0>(y), std::get<0>(plain->forward<Result>(x, 0.5))));
  EXPECT_TRUE(same_bits(std::get<0>(model->forward<Result>(x)), std::get<0>(plain->forward<Result>(x))));
  expect_error([&] { model->forward<Result>(x, 1.0, 2.0); }, {"expects at least 1 argument(s) and at most 2"});
  expect_error([&] { model->forward<Result>(1); }, {"Expected argument #0 to be of type"});
}

TEST_F(ApplyCheckpointingTest, AppliedAgainItChangesTheSettings) {
  Model model;
  apply_checkpointing(model, {.modules = {"blocks.0"}});
  CheckpointOptions options;
  options.off_in_eval = true;
  apply_checkpointing(model, {.modules = {"blocks.0"}, .policy = "must_save_all", .options = options});
  at::Tensor y = model->forward(sample({3, 4}));
  auto trace = find_checkpointing(*model, "blocks.0")->last_trace();
  y.sum().backward();
  EXPECT_EQ(trace->stats().recomputed_ops, 0);
  model->eval();
  model->forward(constant({3, 4}));
  EXPECT_EQ(model->regions(), (std::vector<int>{1, 0, 0, 0, 0}));
}

TEST_F(ApplyCheckpointingTest, APlanIsForAStepAndNotForEachOfSeveralModules) {
  Model model;
  const at::Tensor x = sample({3, 8});
  const Plan made = plan([&] { model->blocks->forward(x).sum().backward(); }, "1MiB", {.modelled_costs = true});
  expect_error([&] { apply_checkpointing(model, {.modules = {ModuleSelector("blocks.*")}, .policy = made}); },
               {"apply_checkpointing was given a plan for", "open one PolicyScope(plan) around it"});
  EXPECT_EQ(find_checkpointing(*model, "blocks.0"), nullptr);
}

TEST_F(ApplyCheckpointingTest, ANumberOfBytesIsOneBudgetThatAllModulesShare) {
  Model model;
  CheckpointOptions options;
  options.memory_budget = 1 * MiB;
  apply_checkpointing(model, {.modules = {ModuleSelector("blocks.*")}, .options = options});
  const MemoryBudget budget = *find_checkpointing(*model, "blocks.0")->options().memory_budget.budget();
  at::Tensor y = model->blocks->forward(sample({3, 8}));
  const int64_t held = budget.held_bytes();
  EXPECT_GT(held, 0);
  y = model->block(1).forward(y);  // by its type, outside of regions
  EXPECT_EQ(budget.held_bytes(), held);
  EXPECT_EQ(find_checkpointing(*model, "blocks.4")->options().memory_budget.budget()->held_bytes(), held);
}

TEST_F(ApplyCheckpointingTest, CanBeRemoved) {
  Model model;
  apply_checkpointing(model, {.modules = {"blocks.*", "head"}});
  remove_checkpointing(*model);
  model->forward(sample({3, 4}));
  EXPECT_EQ(model->regions(), (std::vector<int>{0, 0, 0, 0, 0}));
  EXPECT_EQ(model->head->checkpointing().last_trace(), nullptr);
  EXPECT_EQ(find_checkpointing(*model, "blocks.0"), nullptr);
  EXPECT_EQ(model->blocks->at<BlockImpl>(0).calls, 1);
}

TEST_F(ApplyCheckpointingTest, ClonesKeepIt) {
  Model model;
  apply_checkpointing(model, {.modules = {"blocks.1"}, .policy = "must_save_all"});
  auto clone = std::dynamic_pointer_cast<ModelImpl>(model->clone());
  model->eval();
  clone->eval();
  at::Tensor x = sample({3, 4});
  EXPECT_TRUE(same_bits(clone->forward(x), model->forward(x)));
  EXPECT_EQ(clone->regions(), (std::vector<int>{0, 1, 0, 0, 0}));
  EXPECT_NE(find_checkpointing(*clone, "blocks.1"), find_checkpointing(*model, "blocks.1"));
  // Trained apart.
  clone->forward(x).sum().backward();
  EXPECT_TRUE(clone->block(1).up->weight.grad().defined());
  EXPECT_FALSE(model->block(1).up->weight.grad().defined());
  remove_checkpointing(*clone);
  model->forward(x);
  EXPECT_EQ(model->block(1).regions, 2);
}

TEST_F(ApplyCheckpointingTest, TransformerLayersAreReachedOneByOne) {
  const auto make = [] {
    return torch::nn::Transformer(torch::nn::TransformerOptions(8, 2, 2, 3).dim_feedforward(16).dropout(0.1));
  };
  const auto forward = [](torch::nn::Transformer& m, const Tensors& in) {
    return Tensors{m->forward(in[0], in[1]),
                   m->forward(in[0], in[1], {}, torch::nn::TransformerImpl::generate_square_subsequent_mask(4), {}, {},
                              at::zeros({3, 4}, at::kBool))};
  };
  const Tensors inputs = {sample({5, 3, 8}), sample({4, 3, 8})};
  expect_same_training_when_applied<torch::nn::Transformer>(
      make, {.modules = {ModuleSelector::type<torch::nn::TransformerEncoderLayer>()}}, forward, inputs);
  expect_same_training_when_applied<torch::nn::Transformer>(
      make, {.modules = {ModuleSelector("decoder.layers.*").every(2)}}, forward, inputs);
  expect_same_training_when_applied<torch::nn::Transformer>(
      make, {.modules = {"encoder", "decoder", "*.layers.*", "*.norm"}}, forward, inputs);

  torch::nn::Transformer model = make();
  EXPECT_EQ(
      apply_checkpointing(model, {.modules = {ModuleSelector::type<torch::nn::TransformerEncoderLayer>(),
                                              ModuleSelector::type<torch::nn::TransformerDecoderLayer>()}}),
      (Names{"encoder.layers.0", "encoder.layers.1", "decoder.layers.0", "decoder.layers.1", "decoder.layers.2"}));
  at::Tensor y = model->forward(inputs[0], inputs[1]);
  auto first = find_checkpointing(*model, "encoder.layers.0")->last_trace();
  auto second = find_checkpointing(*model, "encoder.layers.1")->last_trace();
  EXPECT_NE(first, second);
  EXPECT_EQ(first->stats().recorded_ops, second->stats().recorded_ops);
  EXPECT_EQ(find_checkpointing(*model, "encoder"), nullptr);
  y.sum().backward();
  EXPECT_GT(first->stats().recomputed_ops, 0);
}

TEST_F(ApplyCheckpointingTest, AnEncoderInASequentialGivesUpItsLayers) {
  const auto make = [] {
    torch::nn::TransformerEncoderLayer layer(torch::nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16));
    return Sequential(torch::nn::Linear(4, 8), torch::nn::TransformerEncoder(layer, 3));
  };
  expect_same_training_when_applied<Sequential>(
      make, {.modules = {ModuleSelector::type<torch::nn::TransformerEncoderLayer>()}}, forward_one<Sequential>,
      {sample({5, 3, 4})});
  Sequential model = make();
  apply_checkpointing(model, {.modules = {"1.layers.*"}});
  auto clone = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(model->clone());
  at::Tensor y = clone->forward(sample({5, 3, 4}));
  EXPECT_NE(find_checkpointing(*clone, "1.layers.2")->last_trace(), nullptr);
  EXPECT_EQ(find_checkpointing(*model, "1.layers.2")->last_trace(), nullptr);
}

TEST_F(ApplyCheckpointingTest, KeepsTheOutputOfAnEntry) {
  struct SinExpImpl : torch::nn::Module {
    at::Tensor forward(at::Tensor x) { return x.sin().exp(); }
  };
  for (const bool keep : {false, true}) {
    Sequential model(std::make_shared<SinExpImpl>());
    CheckpointOptions options;
    options.keep_output = keep;
    options.offload_inputs = keep;
    apply_checkpointing(model, {.modules = {"0"}, .options = options});
    at::Tensor x = sample({7});
    at::Tensor y = model->forward(x).sum();
    at::Tensor gradient = gradient_of(y, x);
    EXPECT_TRUE(same_bits(gradient, gradient_of(x.sin().exp().sum(), x)));
    EXPECT_EQ(find_checkpointing(*model, "0")->last_trace()->stats().recomputed_ops, keep ? 0 : 2);
  }
}

TEST_F(ApplyCheckpointingTest, OnlyTheOutputOfATupleIsKept) {
  Sequential model(torch::nn::LSTM(4, 3));
  CheckpointOptions options;
  options.keep_output = true;
  apply_checkpointing(model, {.modules = {"0"}, .options = options});
  using Result = std::tuple<at::Tensor, std::tuple<at::Tensor, at::Tensor>>;
  at::Tensor x = sample({5, 2, 4});
  at::Tensor y = std::get<0>(model->forward<Result>(x));
  remove_checkpointing(*model);
  at::Tensor expected = std::get<0>(model->forward<Result>(x));
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(expected, x)));
}

TEST_F(ApplyCheckpointingTest, WhatCannotBeReachedIsNamedAndNothingIsChanged) {
  Model model;
  expect_error(
      [&] {
        apply_checkpointing(model, {.modules = {"blocks.0", "embed"}});
      },
      {"cannot reach 'embed', a torch::nn::LinearImpl", "the model, a", "ModelImpl", "Checkpointed<>"});
  EXPECT_EQ(find_checkpointing(*model, "blocks.0"), nullptr);
  expect_error([&] { apply_checkpointing(model, {.modules = {"list.0"}}); },
               {"cannot reach 'list.0'", "'list', a torch::nn::ModuleListImpl"});
  expect_error([&] { apply_checkpointing(model, {.modules = {"blocks.*.norm"}}); }, {"cannot reach 'blocks.0.norm'"});
  expect_error([&] { apply_checkpointing(model, {.modules = {ModuleSelector::type<Model>()}}); },
               {"cannot reach the model itself", "checkpoint_wrapper(model)"});
  struct HasEncoderImpl : torch::nn::Module {
    HasEncoderImpl()
        : encoder(
              register_module("encoder", torch::nn::TransformerEncoder(torch::nn::TransformerEncoderLayer(8, 2), 2))) {}
    torch::nn::TransformerEncoder encoder;
  };
  expect_error(
      [&] {
        apply_checkpointing(std::make_shared<HasEncoderImpl>(),
                            {.modules = {ModuleSelector::type<torch::nn::TransformerEncoderLayer>()}});
      },
      {"cannot reach 'encoder.layers.0', a torch::nn::TransformerEncoderLayerImpl"});
}

TEST_F(ApplyCheckpointingTest, ReportsGoByTheModulesOfTheModelFromThenOn) {
  Model model;
  const auto explained = [&] {
    const PolicyScope scope("must_save_all");
    const at::Tensor y = model->forward(sample({3, 4}));
    return explain(*scope.trace());
  };
  EXPECT_THAT(explained(), Not(HasSubstr("blocks.")));
  apply_checkpointing(model, {.modules = {"list.*"}, .skip_unreachable = true});
  EXPECT_THAT(explained(), HasSubstr("blocks.*.up (5 modules)"));
  // It gives each parameter another storage.
  model->to(at::kDouble);
  model->to(at::kFloat);
  EXPECT_THAT(explained(), HasSubstr("blocks.*.up (5 modules)"));
}

TEST_F(ApplyCheckpointingTest, ASelectorThatPicksNothingIsAnError) {
  Model model;
  expect_error(
      [&] {
        apply_checkpointing(model, {.modules = {"blocks.*", "blokcs.*"}});
      },
      {"found no module named \"blokcs.*\"", "embed, blocks, list, head"});
  EXPECT_EQ(find_checkpointing(*model, "blocks.0"), nullptr);
  expect_error([&] { apply_checkpointing(model, {.modules = {ModuleSelector::type<torch::nn::Conv2d>()}}); },
               {"found no module of type torch::nn::Conv2dImpl"});
  expect_error([&] { apply_checkpointing(model, {.modules = {ModuleSelector("blocks.*").every(2, 5)}}); },
               {"found no module named \"blocks.*\", every(2, 5) in"});
  expect_error([&] { apply_checkpointing(model, {}); }, {"no selector in CheckpointSpec::modules"});
  expect_error([&] { ModuleSelector(""); }, {"empty pattern"});
  const char* const unset = nullptr;
  expect_error([&] { const ModuleSelector selector(unset); }, {"null pointer"});
  expect_error([&] { ModuleSelector(ModuleSelector::Predicate(), "nothing"); }, {"empty function"});
  expect_error([&] { ModuleSelector("*").every(0); }, {"every(0, 0)"});
  expect_error([&] { ModuleSelector("*").every(1, -1); }, {"every(1, -1)"});
  expect_error([&] { find_checkpointing(*model, "blocks.9"); }, {"no module named \"blocks.9\""});
  expect_error([&] { apply_checkpointing(Model(nullptr), {.modules = {"*"}}); }, {"was given an empty module"});
  expect_error([&] { ModuleSelector("*").select({"a"}, {}); }, {"1 names and 0 modules"});
}

TEST_F(ApplyCheckpointingTest, AnExceptionLeavesTheThreadClean) {
  Model model;
  apply_checkpointing(model, {.modules = {"blocks.*"}});
  model->block(3).fails = true;
  EXPECT_THROW(model->forward(sample({3, 4})), std::runtime_error);
  expect_next_region_works();
}

TEST_F(ApplyCheckpointingTest, OutermostAndInnerModulesShareARegion) {
  Sequential inner(torch::nn::Linear(4, 4), torch::nn::Tanh());
  Sequential model(checkpoint_wrapper(inner), torch::nn::Tanh());
  EXPECT_EQ(apply_checkpointing(model, {.modules = {"0", "0.1"}}), (Names{"0", "0.1"}));
  at::Tensor x = sample({3, 4});
  at::Tensor y = model->forward(x);
  EXPECT_EQ(find_checkpointing(*model, "0")->last_trace(), find_checkpointing(*model, "0.1")->last_trace());
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(at::tanh(inner->forward(x)), x)));
}

}  // namespace
}  // namespace ac2::test
