// Checkpointed modules: trained, saved, cloned and nested as the plain ones, with bitwise the same results.
#include <torch/torch.h>

#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ac2/ac2.h"
#include "policies/policies.h"
#include "tests/support/modules.h"

namespace ac2::test {
namespace {

using CheckpointedTest = CleanTest;

// A user's module: several arguments, defaults that only its forward knows, and a result of its own.
struct Scored {
  at::Tensor values;
  double score = 0;
};

struct ScalerImpl : torch::nn::Cloneable<ScalerImpl> {
  explicit ScalerImpl(int64_t dim) : dim(dim) { reset(); }
  void reset() override { weight = register_parameter("weight", torch::randn({dim})); }
  Scored forward(at::Tensor x, double scale = 2.0, std::vector<at::Tensor> more = {}) {
    ++calls;
    at::Tensor y = (x * weight).sin() * scale;
    for (const at::Tensor& t : more) y = y + t.sin();
    return {y, scale};
  }
  int64_t dim;
  int calls = 0;
  at::Tensor weight;
};
TORCH_MODULE(Scaler);

// Defaults that Sequential can use too.
struct ShiftImpl : torch::nn::Module {
  at::Tensor forward(at::Tensor x, double by = 0.5) {
    if (fails) throw std::runtime_error("shift failed");
    region_seen = is_checkpoint_enabled();
    return (x + by).sin().cos();
  }
  bool fails = false;
  bool region_seen = false;

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(0.5)})
};
TORCH_MODULE(Shift);

// Called through its base class.
struct LayerImpl : torch::nn::Module {
  virtual at::Tensor forward(const at::Tensor& x) = 0;
};
struct SinLayerImpl : LayerImpl {
  at::Tensor forward(const at::Tensor& x) override { return x.sin().cos(); }
};

struct NotCopyableImpl : torch::nn::Module {
  explicit NotCopyableImpl(int64_t n) : linear(register_module("linear", torch::nn::Linear(n, n))) {}
  at::Tensor forward(at::Tensor x) { return linear->forward(x).sin(); }
  std::unique_ptr<int> state;
  torch::nn::Linear linear;
};

// Trains `make()` plain and wrapped.
template <class Holder>
void expect_same_when_wrapped(const std::function<Holder()>& make,
                              const std::function<Tensors(Holder&, const Tensors&)>& plain_forward,
                              const std::function<Tensors(Checkpointed<Holder>&, const Tensors&)>& forward,
                              const Tensors& inputs, Policy policy = "recompute_all") {
  Training plain = train<Holder>(make, plain_forward, inputs, nullptr, nullptr);
  Training wrapped = train<Checkpointed<Holder>>([&] { return checkpoint_wrapper(make(), policy); }, forward, inputs,
                                                 nullptr, nullptr);
  expect_same_bits(wrapped.outputs, plain.outputs, "output");
  expect_same_bits(wrapped.parameter_gradients, plain.parameter_gradients, "parameter gradient");
  expect_same_bits(wrapped.input_gradients, plain.input_gradients, "input gradient");
  expect_same_bits(wrapped.buffers_after_forward, plain.buffers_after_forward, "buffer");
  expect_same_bits(wrapped.buffers_after_backward, plain.buffers_after_backward, "buffer, later");
  EXPECT_TRUE(same_bits(wrapped.generator, plain.generator));
  expect_nothing_left();
}

template <class Holder>
void expect_same_when_wrapped(const std::function<Holder()>& make, const Tensors& inputs,
                              Policy policy = "recompute_all") {
  expect_same_when_wrapped<Holder>(
      make, [](Holder& m, const Tensors& in) { return Tensors{m->forward(in[0])}; },
      [](Checkpointed<Holder>& m, const Tensors& in) { return Tensors{m->forward(in[0])}; }, inputs, policy);
}

Tensors gradients(torch::nn::Module& module) {
  Tensors result;
  for (const at::Tensor& p : module.parameters()) result.push_back(p.grad());
  return result;
}

std::string printed(const torch::nn::Module& module) {
  std::ostringstream out;
  out << module;
  return out.str();
}

TEST_F(CheckpointedTest, LinearTrainsTheSame) {
  expect_same_when_wrapped<torch::nn::Linear>([] { return torch::nn::Linear(4, 3); }, {sample({5, 4})});
}

TEST_F(CheckpointedTest, Conv2dTrainsTheSame) {
  expect_same_when_wrapped<torch::nn::Conv2d>([] { return torch::nn::Conv2d(3, 4, 3); }, {sample({2, 3, 6, 6})});
}

TEST_F(CheckpointedTest, EmbeddingTrainsTheSame) {
  expect_same_when_wrapped<torch::nn::Embedding>([] { return torch::nn::Embedding(6, 3); },
                                                 {at::tensor({1, 4, 1, 0}).to(at::kLong)});
}

TEST_F(CheckpointedTest, BatchNormChangesItsStatisticsOnce) {
  expect_same_when_wrapped<torch::nn::BatchNorm2d>([] { return torch::nn::BatchNorm2d(3); }, {sample({4, 3, 5, 5})});
  auto norm = checkpoint_wrapper(torch::nn::BatchNorm1d(3));
  norm->forward(sample({4, 3})).sin().sum().backward();
  EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 1);
}

TEST_F(CheckpointedTest, DropoutDrawsTheSame) {
  expect_same_when_wrapped<torch::nn::Dropout>([] { return torch::nn::Dropout(0.4); }, {sample({20, 20})});
}

TEST_F(CheckpointedTest, SequentialTrainsTheSame) {
  for (const Policy& policy : {Policy("recompute_all"), Policy("must_save_all"), policies::save_compute_intensive()}) {
    expect_same_when_wrapped<torch::nn::Sequential>(
        [] {
          return torch::nn::Sequential(torch::nn::Conv2d(3, 4, 3), torch::nn::BatchNorm2d(4),
                                       torch::nn::ReLU(torch::nn::ReLUOptions(true)), torch::nn::Dropout(0.2),
                                       torch::nn::Flatten(), torch::nn::Linear(64, 5));
        },
        {sample({2, 3, 6, 6})}, policy);
  }
}

TEST_F(CheckpointedTest, LstmReturnsItsTuple) {
  const auto forward = [](auto& m, const Tensors& in) {
    auto [y, state] = m->forward(in[0]);
    auto [z, last] = m->forward(y, state);
    return Tensors{z, std::get<0>(last), std::get<1>(last)};
  };
  expect_same_when_wrapped<torch::nn::LSTM>(
      [] { return torch::nn::LSTM(torch::nn::LSTMOptions(4, 4).num_layers(2).dropout(0.3)); }, forward, forward,
      {sample({6, 3, 4})});
}

TEST_F(CheckpointedTest, MultiheadAttentionTakesSeveralArguments) {
  const auto forward = [](auto& m, const Tensors& in) {
    auto [output, weights] = m->forward(in[0], in[0], in[0].sin());
    auto [masked, nothing] = m->forward(in[0], in[0], in[0], {}, false, at::ones({4, 4}, at::kBool).triu(1));
    EXPECT_FALSE(nothing.defined());
    return Tensors{output, weights, masked};
  };
  expect_same_when_wrapped<torch::nn::MultiheadAttention>(
      [] { return torch::nn::MultiheadAttention(torch::nn::MultiheadAttentionOptions(8, 2).dropout(0.2)); }, forward,
      forward, {sample({4, 3, 8})});
}

TEST_F(CheckpointedTest, TransformerEncoderLayerTrainsTheSame) {
  const auto forward = [](auto& m, const Tensors& in) {
    at::Tensor mask = at::ones({4, 4}, at::kBool).triu(1);
    return Tensors{m->forward(in[0]), m->forward(in[0], mask), m->forward(in[0], {}, at::zeros({3, 4}, at::kBool)),
                   (*m).forward(in[0]), m(in[0])};
  };
  expect_same_when_wrapped<torch::nn::TransformerEncoderLayer>(
      [] {
        return torch::nn::TransformerEncoderLayer(
            torch::nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16).dropout(0.1));
      },
      forward, forward, {sample({4, 3, 8})});
}

TEST_F(CheckpointedTest, TakesDefaultArgumentsAndReturnsWhatIsNoTensor) {
  const auto forward = [](auto& m, const Tensors& in) {
    Scored a = m->forward(in[0]);
    EXPECT_EQ(a.score, 2.0);
    Scored b = m->forward(in[0], 3);
    EXPECT_EQ(b.score, 3.0);
    return Tensors{a.values, b.values, m->forward(in[0], 1.5, {in[1], in[1].cos()}).values};
  };
  expect_same_when_wrapped<Scaler>([] { return Scaler(3); }, forward, forward, {sample({5, 3}), sample({5, 3})});
}

TEST_F(CheckpointedTest, DefaultArgumentsOnTheModuleItselfAreThoseDeclared) {
  auto shift = std::make_shared<Checkpointed<ShiftImpl>>();
  at::Tensor x = constant({3});
  EXPECT_TRUE(same_bits(shift->forward(x), (x + 0.5).sin().cos()));
  EXPECT_TRUE(same_bits(shift->forward(x, 2), (x + 2.0).sin().cos()));
  Checkpointed<ScalerImpl> scaler(3);
  EXPECT_TRUE(same_bits(scaler.forward(x, 3, {}).values, (x * scaler.weight).sin() * 3.0));
  expect_error([&] { scaler.forward(x); },
               {"The default of argument #", "ScalerImpl::forward() is not known", "FORWARD_HAS_DEFAULT_ARGS"});
}

TEST_F(CheckpointedTest, ForwardRunsOnceAndOpsAreRecomputed) {
  auto scaler = checkpoint_wrapper(Scaler(3));
  at::Tensor x = sample({5, 3});
  at::Tensor y = scaler->forward(x).values.cos();
  auto trace = scaler->checkpointing().last_trace();
  ASSERT_NE(trace, nullptr);
  EXPECT_EQ(trace->stats().recorded_ops, 3);                           // mul, sin, mul
  EXPECT_EQ(trace->stats().saved_bytes, (5 * 3 + 3) * sizeof(float));  // x and weight
  y.sum().backward();
  EXPECT_EQ(trace->stats().recomputed_ops, 1);  // x * weight, for sin
  EXPECT_EQ(trace->stats().saved_bytes, 0);
  EXPECT_EQ(scaler->calls, 1);
}

TEST_F(CheckpointedTest, AHolderTypeIsMadeAsThePlainOne) {
  Checkpointed<torch::nn::Linear> a(4, 3);
  Checkpointed<torch::nn::Linear> b(torch::nn::LinearOptions(4, 3).bias(false));
  auto c = std::make_shared<Checkpointed<torch::nn::LinearImpl>>(4, 3);
  EXPECT_EQ(a->parameters().size(), 2U);
  EXPECT_EQ(b->parameters().size(), 1U);
  at::Tensor x = sample({2, 4});
  EXPECT_TRUE(same_bits(a->forward(x), at::linear(x, a->weight, a->bias)));
  EXPECT_TRUE(same_bits(c->forward(x), at::linear(x, c->weight, c->bias)));
  Checkpointed<torch::nn::Linear> empty(nullptr);
  EXPECT_TRUE(empty.is_empty());
  empty = c;  // a holder of the same module
  EXPECT_EQ(empty.ptr(), c);
}

TEST_F(CheckpointedTest, SharesTensorsWithTheModuleItWasMadeFrom) {
  torch::nn::Linear plain(4, 3);
  auto wrapped = checkpoint_wrapper(plain);
  EXPECT_TRUE(wrapped->weight.is_same(plain->weight));
  ASSERT_EQ(wrapped->parameters().size(), 2U);
  EXPECT_TRUE(wrapped->parameters()[1].is_same(plain->bias));
  wrapped->forward(constant({2, 4})).sum().backward();
  EXPECT_TRUE(plain->weight.grad().defined());
  wrapped->to(at::kDouble);
  EXPECT_EQ(plain->weight.scalar_type(), at::kDouble);
  auto shared = checkpoint_wrapper(plain.ptr());
  static_assert(std::is_same_v<decltype(shared), std::shared_ptr<Checkpointed<torch::nn::LinearImpl>>>);
  EXPECT_TRUE(shared->weight.is_same(plain->weight));
}

TEST_F(CheckpointedTest, NamesAndPrintAreThoseOfTheModule) {
  torch::nn::TransformerEncoderLayer plain(8, 2);
  auto wrapped = checkpoint_wrapper(plain);
  EXPECT_EQ(wrapped->named_parameters().keys(), plain->named_parameters().keys());
  EXPECT_EQ(wrapped->named_modules().keys(), plain->named_modules().keys());
  EXPECT_EQ(wrapped->name(), plain->name());
  EXPECT_EQ(printed(*wrapped), printed(*plain));
  EXPECT_EQ(checkpoint_wrapper(torch::nn::BatchNorm1d(3))->named_buffers().keys(),
            torch::nn::BatchNorm1d(3)->named_buffers().keys());
  EXPECT_EQ(printed(*Checkpointed<torch::nn::Linear>(4, 3)), printed(*torch::nn::Linear(4, 3)));
  // Default printing is by the name of the type.
  EXPECT_EQ(printed(*Checkpointed<Scaler>(3)), printed(*Scaler(3)));
  EXPECT_EQ(printed(*checkpoint_wrapper(Scaler(3))), printed(*Scaler(3)));
}

TEST_F(CheckpointedTest, IsFoundAsTheModuleItIs) {
  torch::nn::Sequential model(checkpoint_wrapper(torch::nn::Linear(4, 4)), checkpoint_wrapper(torch::nn::Linear(4, 3)));
  int linears = 0, checkpointed = 0;
  model->apply([&](torch::nn::Module& module) {
    if (auto* linear = module.as<torch::nn::Linear>()) {
      torch::NoGradGuard no_grad;
      linear->weight.fill_(0.25);
      ++linears;
    }
    if (dynamic_cast<CheckpointedModule*>(&module) != nullptr) ++checkpointed;
  });
  EXPECT_EQ(linears, 2);
  EXPECT_EQ(checkpointed, 2);
  EXPECT_EQ(model->parameters()[0].sum().item<float>(), 4);
}

TEST_F(CheckpointedTest, WorksInSequential) {
  torch::manual_seed(1);
  torch::nn::Sequential plain(torch::nn::Linear(4, 6), torch::nn::GELU(), Shift(), torch::nn::Linear(6, 2));
  torch::nn::Sequential wrapped;
  wrapped->push_back(checkpoint_wrapper(plain->ptr<torch::nn::LinearImpl>(0)));
  wrapped->push_back("gelu", checkpoint_wrapper(torch::nn::GELU()));
  wrapped->push_back(Checkpointed<Shift>());
  wrapped->push_back(checkpoint_wrapper(plain->ptr<torch::nn::LinearImpl>(3)));
  at::Tensor x = sample({5, 4});
  EXPECT_TRUE(same_bits(wrapped->forward(x), plain->forward(x)));
  EXPECT_TRUE(wrapped->at<Checkpointed<ShiftImpl>>(2).region_seen);
  EXPECT_TRUE(wrapped->at<Checkpointed<torch::nn::LinearImpl>>(0).weight.defined());
  plain->forward(x).sum().backward();
  Tensors plain_gradients;
  for (at::Tensor& p : plain->parameters()) plain_gradients.push_back(p.grad().clone());
  plain->zero_grad();
  expect_nothing_left();
  wrapped->forward(x).sum().backward();
  expect_same_bits(gradients(*plain), plain_gradients, "gradient");
}

TEST_F(CheckpointedTest, ASequentialFitsIntoASequentialOnceCheckpointed) {
  auto block = [] { return torch::nn::Sequential(torch::nn::Linear(4, 4), torch::nn::Tanh()); };
  torch::nn::Sequential first = block(), second = block();
  torch::nn::Sequential model(checkpoint_wrapper(first), checkpoint_wrapper(second));
  at::Tensor x = sample({3, 4});
  at::Tensor y = model->forward(x);
  EXPECT_TRUE(same_bits(y, second->forward(first->forward(x))));
  y.sum().backward();
  EXPECT_EQ(model->named_parameters().keys()[2], "1.0.weight");
}

TEST_F(CheckpointedTest, TakesATemplatedForwardsReturnType) {
  torch::nn::Sequential plain(torch::nn::LSTM(4, 5));
  auto wrapped = checkpoint_wrapper(plain);
  using Result = std::tuple<at::Tensor, std::tuple<at::Tensor, at::Tensor>>;
  at::Tensor x = sample({2, 3, 4});
  at::Tensor y = std::get<0>(wrapped->forward<Result>(x, std::optional<std::tuple<at::Tensor, at::Tensor>>()));
  EXPECT_TRUE(same_bits(y, std::get<0>(plain->forward<Result>(x))));
}

TEST_F(CheckpointedTest, WorksInModuleListAndModuleDict) {
  torch::nn::ModuleList list(checkpoint_wrapper(torch::nn::Linear(4, 4)), checkpoint_wrapper(Scaler(4)));
  EXPECT_EQ(list->named_parameters().keys(), (std::vector<std::string>{"0.weight", "0.bias", "1.weight"}));
  at::Tensor x = sample({3, 4});
  list->at<Checkpointed<torch::nn::LinearImpl>>(0).forward(x).sin().sum().backward();
  EXPECT_NE(list->at<Checkpointed<torch::nn::LinearImpl>>(0).checkpointing().last_trace(), nullptr);
  torch::nn::ModuleDict dict;
  dict->update({{"a", checkpoint_wrapper(torch::nn::Linear(4, 4)).ptr()}});
  EXPECT_NE(dict["a"]->as<torch::nn::Linear>(), nullptr);
  EXPECT_EQ(dict->named_parameters().keys()[0], "a.weight");
}

TEST_F(CheckpointedTest, ArchivesGoBothWays) {
  const auto make = [] {
    return torch::nn::Sequential(torch::nn::Linear(4, 4), torch::nn::BatchNorm1d(4), torch::nn::Linear(4, 2));
  };
  torch::nn::Sequential plain = make();
  torch::nn::Sequential wrapped(Checkpointed<torch::nn::Linear>(4, 4), Checkpointed<torch::nn::BatchNorm1d>(4),
                                Checkpointed<torch::nn::Linear>(4, 2));
  plain->forward(constant({5, 4}));  // statistics worth saving
  std::stringstream forth, back;
  torch::save(plain, forth);
  torch::load(wrapped, forth);
  expect_same_bits(wrapped->parameters(), plain->parameters(), "parameter");
  expect_same_bits(wrapped->buffers(), plain->buffers(), "buffer");
  wrapped->forward(constant({5, 4}));
  torch::save(wrapped, back);
  torch::load(plain, back);
  expect_same_bits(wrapped->buffers(), plain->buffers(), "buffer");

  auto one = checkpoint_wrapper(torch::nn::Linear(3, 2));
  torch::nn::Linear other(3, 2);
  std::stringstream single;
  torch::save(one, single);
  torch::load(other, single);
  EXPECT_TRUE(same_bits(one->weight, other->weight));
}

TEST_F(CheckpointedTest, OptionsInBracesFollowTheModuleOrThePolicy) {
  const auto settings = [](auto wrapped) { return wrapped->checkpointing(); };
  EXPECT_TRUE(settings(checkpoint_wrapper(Scaler(3), {.verify = true})).options().verify);
  EXPECT_EQ(settings(checkpoint_wrapper(Scaler(3), {.verify = true})).policy().name(), "recompute_all");
  EXPECT_EQ(settings(checkpoint_wrapper(Scaler(3), {.memory_budget = 1 << 20})).policy().name(), "no policy");
  EXPECT_TRUE(settings(checkpoint_wrapper(Scaler(3), {.keep_output = true})).options().keep_output);
  EXPECT_TRUE(settings(checkpoint_wrapper(Scaler(3), "speed", {.keep_output = true})).options().keep_output);
  EXPECT_TRUE(settings(checkpoint_wrapper(Scaler(3), "speed", {.verify = true})).options().verify);
  EXPECT_EQ(settings(checkpoint_wrapper(Scaler(3), "speed", {.verify = true})).policy().name(), "speed");
  EXPECT_FALSE(settings(checkpoint_wrapper(Scaler(3), "speed", {})).options().verify);
  const CheckpointOptions both =
      settings(checkpoint_wrapper(Scaler(3), "speed", {.verify = true, .off_in_eval = true})).options();
  EXPECT_TRUE(both.verify && both.off_in_eval);
  EXPECT_FALSE(settings(checkpoint_wrapper(Scaler(3), {})).options().keep_output);
}

TEST_F(CheckpointedTest, TheOptionsOfAScopeAreOptionsOfAModule) {
  const ScopeOptions options{.memory_budget = "1MiB",
                             .modelled_costs = true,
                             .verify = true,
                             .timeline = true,
                             .offload = OffloadOptions{.min_bytes = 7},
                             .gather_units = [](const std::vector<at::Tensor>&) {},
                             .keep_for_next_backward = true,
                             .forms = {forms::one_bit()}};
  const CheckpointOptions taken = checkpoint_wrapper(Scaler(3), "speed", options)->checkpointing().options();
  EXPECT_EQ(taken.memory_budget.budget(true)->bytes(), 1 * MiB);
  EXPECT_TRUE(taken.modelled_costs && taken.verify && taken.timeline && taken.keep_for_next_backward);
  EXPECT_EQ(taken.offload->min_bytes, 7);
  EXPECT_TRUE(taken.gather_units);
  EXPECT_EQ(taken.forms.size(), 1);
  const ScopeOptions given = internal::scope_options(taken);
  EXPECT_EQ(given.memory_budget.budget(true)->bytes(), 1 * MiB);
  EXPECT_TRUE(given.modelled_costs && given.verify && given.timeline && given.keep_for_next_backward);
  EXPECT_EQ(given.offload->min_bytes, 7);
  EXPECT_TRUE(given.gather_units);
  EXPECT_EQ(given.forms.size(), 1);
  EXPECT_EQ(checkpoint_wrapper(Scaler(3), options)->checkpointing().policy().name(), "no policy");
}

TEST_F(CheckpointedTest, TheOldNamespaceStillHasTheNames) {
  static_assert(std::is_same_v<nn::Checkpointed<Scaler>, Checkpointed<Scaler>>);
  static_assert(std::is_same_v<nn::CheckpointOptions, CheckpointOptions>);
  nn::Checkpointed<torch::nn::Linear> linear(3, 3);
  nn::checkpoint_wrapper(torch::nn::Linear(3, 3));
}

TEST_F(CheckpointedTest, ACloneIsTrainedIndependently) {
  CheckpointOptions options;
  options.keep_output = true;
  auto original = checkpoint_wrapper(Scaler(3), "recompute_all", options);
  original->eval();
  auto clone = std::dynamic_pointer_cast<Checkpointed<ScalerImpl>>(original->clone());
  ASSERT_NE(clone, nullptr);
  EXPECT_TRUE(same_bits(clone->weight, original->weight));
  EXPECT_TRUE(clone->checkpointing().options().keep_output);
  EXPECT_EQ(clone->checkpointing().last_trace(), nullptr);
  EXPECT_FALSE(clone->is_training());
  EXPECT_EQ(clone->name(), original->name());
  torch::optim::SGD optimizer(clone->parameters(), 0.1);
  const at::Tensor before = original->weight.detach().clone();
  clone->forward(constant({5, 3}), 2.0, {}).values.sum().backward();
  optimizer.step();
  EXPECT_TRUE(same_bits(original->weight.detach(), before));
  EXPECT_FALSE(same_bits(clone->weight.detach(), before));
  EXPECT_FALSE(original->weight.grad().defined());
}

TEST_F(CheckpointedTest, CloneOfASequentialKeepsItsEntriesCheckpointed) {
  torch::nn::Sequential model(checkpoint_wrapper(torch::nn::Linear(4, 4)), torch::nn::Tanh());
  auto clone = std::dynamic_pointer_cast<torch::nn::SequentialImpl>(model->clone());
  at::Tensor x = sample({2, 4});
  at::Tensor y = clone->forward(x);
  EXPECT_TRUE(same_bits(y, model->forward(x)));
  EXPECT_NE(clone->at<Checkpointed<torch::nn::LinearImpl>>(0).checkpointing().last_trace(), nullptr);
  EXPECT_FALSE(clone->parameters()[0].is_same(model->parameters()[0]));
}

struct HasCheckpointedChildImpl : torch::nn::Cloneable<HasCheckpointedChildImpl> {
  HasCheckpointedChildImpl() { reset(); }
  void reset() override { linear = register_module("linear", Checkpointed<torch::nn::Linear>(3, 3)); }
  at::Tensor forward(at::Tensor x) { return linear->forward(x).sin(); }
  Checkpointed<torch::nn::Linear> linear{nullptr};
};

TEST_F(CheckpointedTest, IsClonedByItsParent) {
  HasCheckpointedChildImpl parent;
  auto clone = std::dynamic_pointer_cast<HasCheckpointedChildImpl>(parent.clone());
  at::Tensor x = sample({2, 3});
  EXPECT_TRUE(same_bits(clone->forward(x), parent.forward(x)));
  EXPECT_FALSE(clone->linear->weight.is_same(parent.linear->weight));
  EXPECT_NE(clone->linear->checkpointing().last_trace(), nullptr);
}

TEST_F(CheckpointedTest, ModeConversionAndGradientsReachTheModule) {
  auto layer = checkpoint_wrapper(torch::nn::TransformerEncoderLayer(8, 2));
  layer->eval();
  EXPECT_FALSE(layer->is_training());
  EXPECT_FALSE(layer->dropout1->is_training());
  layer->train();
  EXPECT_TRUE(layer->self_attn->is_training());
  layer->to(at::kDouble);
  EXPECT_EQ(layer->linear1->weight.scalar_type(), at::kDouble);
  layer->forward(constant({2, 1, 8}, at::kDouble)).sum().backward();
  EXPECT_TRUE(layer->linear2->weight.grad().defined());
  layer->zero_grad();
  EXPECT_FALSE(layer->linear2->weight.grad().defined());
}

TEST_F(CheckpointedTest, EvalOfAnLstmGivesTheSame) {
  torch::nn::LSTM plain(torch::nn::LSTMOptions(4, 5).num_layers(2).dropout(0.5));
  auto wrapped = checkpoint_wrapper(plain);
  plain->eval();
  wrapped->eval();
  wrapped->to(at::kDouble);
  at::Tensor x = constant({3, 2, 4}, at::kDouble);
  EXPECT_TRUE(same_bits(std::get<0>(wrapped->forward(x)), std::get<0>(plain->forward(x))));
}

TEST_F(CheckpointedTest, SwitchesOffInEvaluation) {
  CheckpointOptions options;
  options.off_in_eval = true;
  auto shift = checkpoint_wrapper(Shift(), "recompute_all", options);
  at::Tensor x = sample({3});
  shift->forward(x);
  EXPECT_TRUE(shift->region_seen);
  shift->eval();
  shift->forward(x);
  EXPECT_FALSE(shift->region_seen);
  shift->checkpointing().set_options({});
  shift->forward(x);
  EXPECT_TRUE(shift->region_seen);
}

TEST_F(CheckpointedTest, SwitchesOffUnderNoGrad) {
  CheckpointOptions options;
  options.off_under_no_grad = true;
  auto always = checkpoint_wrapper(Shift());
  auto shift = checkpoint_wrapper(Shift(), "recompute_all", options);
  at::Tensor x = sample({3});
  {
    torch::NoGradGuard no_grad;
    EXPECT_TRUE(same_bits(shift->forward(x), always->forward(x)));
    EXPECT_FALSE(shift->region_seen);
    EXPECT_TRUE(always->region_seen);
    EXPECT_EQ(live_node_count(), 0);
  }
  {
    torch::InferenceMode inference;
    shift->forward(x);
    EXPECT_FALSE(shift->region_seen);
  }
  shift->forward(x);
  EXPECT_TRUE(shift->region_seen);
}

TEST_F(CheckpointedTest, CanBeSwitchedOffAndOn) {
  auto shift = checkpoint_wrapper(Shift());
  shift->checkpointing().set_on(false);
  shift->forward(sample({3}));
  EXPECT_FALSE(shift->region_seen);
  EXPECT_EQ(shift->checkpointing().last_trace(), nullptr);
  shift->checkpointing().set_on(true);
  shift->forward(sample({3}));
  EXPECT_TRUE(shift->region_seen);
}

TEST_F(CheckpointedTest, KeepsItsOutput) {
  // exp's backward needs its result, and the result dies: it is kept, or everything is replayed.
  struct SinExpImpl : torch::nn::Module {
    std::tuple<at::Tensor, std::optional<at::Tensor>> forward(at::Tensor x) { return {x.sin().exp(), std::nullopt}; }
  };
  for (const bool keep : {false, true}) {
    CheckpointOptions options;
    options.keep_output = keep;
    auto module = checkpoint_wrapper(std::make_shared<SinExpImpl>(), "recompute_all", options);
    at::Tensor x = sample({7});
    at::Tensor y = std::get<0>(module->forward(x)).sum();
    auto trace = module->checkpointing().last_trace();
    EXPECT_EQ(trace->stats().saved_bytes, (keep ? 14 : 7) * sizeof(float));
    at::Tensor gradient = gradient_of(y, x);
    EXPECT_TRUE(same_bits(gradient, gradient_of(x.sin().exp().sum(), x)));
    EXPECT_EQ(trace->stats().recomputed_ops, keep ? 0 : 2);
  }
}

TEST_F(CheckpointedTest, KeepsItsOutputInInferenceModeToo) {
  CheckpointOptions options;
  options.keep_output = true;
  options.offload_inputs = true;
  auto module = checkpoint_wrapper(torch::nn::Linear(3, 3), "recompute_all", options);
  torch::InferenceMode inference;
  EXPECT_TRUE(module->forward(at::ones({2, 3})).is_inference());
}

TEST_F(CheckpointedTest, OffloadedInputsAreKeptInARegionThatRecomputes) {
  for (const bool offload : {false, true}) {
    CheckpointOptions options;
    options.offload_inputs = offload;
    auto module = checkpoint_wrapper(Shift(), "recompute_all", options);
    at::Tensor x = sample({7});
    at::Tensor y;
    std::shared_ptr<const Trace> trace;
    {
      PolicyScope scope("recompute_all");
      trace = scope.trace();
      y = module->forward(x.exp().sin());
    }
    EXPECT_EQ(module->checkpointing().last_trace(), trace);
    at::Tensor gradient = gradient_of(y, x);
    EXPECT_TRUE(same_bits(gradient, gradient_of((x.exp().sin() + 0.5).sin().cos(), x)));
    // add and sin for cos and sin; and x.exp() for itself; with sin() for the module's input unless that was kept.
    EXPECT_EQ(trace->stats().recomputed_ops, offload ? 3 : 4);
  }
}

TEST_F(CheckpointedTest, NestedModulesShareARegion) {
  auto inner = checkpoint_wrapper(Shift());
  auto outer = checkpoint_wrapper(torch::nn::Sequential(torch::nn::Linear(3, 3), inner, checkpoint_wrapper(Shift())));
  auto twice = checkpoint_wrapper(outer, "must_save_all");
  at::Tensor x = sample({4, 3});
  at::Tensor y = outer->forward(x);
  EXPECT_EQ(inner->checkpointing().last_trace(), outer->checkpointing().last_trace());
  at::Tensor z = twice->forward(x);
  EXPECT_TRUE(same_bits(y, z));
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(z, x)));
  EXPECT_EQ(twice->checkpointing().last_trace()->stats().recomputed_ops, 0);
  EXPECT_GT(outer->checkpointing().last_trace()->stats().recomputed_ops, 0);
}

TEST_F(CheckpointedTest, UsedTwiceItHasARegionEachTime) {
  auto layer = checkpoint_wrapper(torch::nn::Linear(3, 3));
  const auto twice = [](auto& m, const Tensors& in) { return Tensors{m->forward(m->forward(in[0]).sin())}; };
  expect_same_when_wrapped<torch::nn::Linear>([] { return torch::nn::Linear(3, 3); }, twice, twice, {sample({2, 3})});
}

TEST_F(CheckpointedTest, AVirtualForwardIsCheckpointedThroughItsBase) {
  std::shared_ptr<LayerImpl> layer = std::make_shared<Checkpointed<SinLayerImpl>>();
  at::Tensor x = sample({3});
  at::Tensor y = layer->forward(x);
  auto trace = dynamic_cast<CheckpointedModule&>(*layer).checkpointing().last_trace();
  ASSERT_NE(trace, nullptr);
  EXPECT_EQ(trace->stats().recorded_ops, 2);
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(x.sin().cos(), x)));
}

TEST_F(CheckpointedTest, AModuleThatCannotBeCopiedIsMadeInPlace) {
  auto module = std::make_shared<Checkpointed<NotCopyableImpl>>(3);
  at::Tensor x = sample({2, 3});
  module->forward(x).sum().backward();
  EXPECT_NE(module->checkpointing().last_trace(), nullptr);
  EXPECT_THROW(module->clone(), c10::Error);
}

TEST_F(CheckpointedTest, AnExceptionLeavesTheThreadClean) {
  auto shift = checkpoint_wrapper(Shift());
  shift->fails = true;
  EXPECT_THROW(shift->forward(sample({3})), std::runtime_error);
  expect_next_region_works();
  shift->fails = false;
  shift->forward(sample({3})).sum().backward();
}

TEST_F(CheckpointedTest, ABadPolicyOptionOrModuleIsRefused) {
  expect_error([] { checkpoint_wrapper(torch::nn::Linear(1, 1), "save_it"); }, {"Unknown policy \"save_it\""});
  expect_error([] { checkpoint_wrapper(torch::nn::Linear(nullptr)); },
               {"checkpoint_wrapper was given an empty module"});
  expect_error([] { checkpoint_wrapper(std::shared_ptr<torch::nn::LinearImpl>()); },
               {"checkpoint_wrapper was given an empty module"});
  expect_error([] { checkpoint_wrapper(std::shared_ptr<ScalerImpl>(std::make_shared<Checkpointed<ScalerImpl>>(3))); },
               {"checkpoint_wrapper was given a", "as a", "its own type"});
  auto no_clone = checkpoint_wrapper(Shift());
  expect_error([&] { no_clone->clone(); }, {"clone() has not been implemented"});
}

TEST_F(CheckpointedTest, ReplicasTrainOnThreads) {
  auto original = checkpoint_wrapper(torch::nn::Linear(4, 4));
  at::Tensor x = constant({6, 4});
  original->forward(x).sin().sum().backward();
  std::vector<std::shared_ptr<Checkpointed<torch::nn::LinearImpl>>> replicas;
  for (int i = 0; i < 3; ++i) {
    replicas.push_back(std::dynamic_pointer_cast<Checkpointed<torch::nn::LinearImpl>>(original->clone()));
  }
  std::vector<std::thread> threads;
  for (auto& replica : replicas) {
    threads.emplace_back([&replica, &x] { replica->forward(x).sin().sum().backward(); });
  }
  for (std::thread& thread : threads) thread.join();
  for (auto& replica : replicas) expect_same_bits(gradients(*replica), gradients(*original), "gradient");
}

TEST_F(CheckpointedTest, OneModuleRunsOnSeveralThreads) {
  auto layer = checkpoint_wrapper(torch::nn::Linear(4, 4));
  at::Tensor x = sample({6, 4});
  const at::Tensor expected = gradient_of(layer->forward(x).sin(), x);
  std::vector<at::Tensor> actual(3);
  std::vector<std::thread> threads;
  for (at::Tensor& gradient : actual) {
    threads.emplace_back([&] { gradient = gradient_of(layer->forward(x).sin(), x); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const at::Tensor& gradient : actual) EXPECT_TRUE(same_bits(gradient, expected));
}

}  // namespace
}  // namespace ac2::test
