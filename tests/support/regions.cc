#include "tests/support/regions.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstring>
#include <utility>

#include "tests/support/wait_for_engine.h"

namespace ac2::test {

namespace {

constexpr uint64_t kSeed = 20240229;

at::Generator& sample_generator() {
  thread_local at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(kSeed);
  return generator;
}

at::Tensor plain_bytes(const at::Tensor& t) {
  // Autograd returns a zero tensor without memory for sgn().
  if (t._is_zerotensor()) return at::zeros(t.sizes(), t.scalar_type());
  return t.detach().resolve_conj().resolve_neg().contiguous().cpu();
}

bool same_memory(const at::Tensor& a, const at::Tensor& b) {
  at::Tensor x = plain_bytes(a), y = plain_bytes(b);
  return x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

at::Tensor output_gradient(const at::Tensor& output) {
  at::Tensor angles = at::arange(1, output.numel() + 1, at::kDouble).mul(0.37).view(output.sizes());
  at::Tensor gradient = output.is_complex() ? at::complex(angles.cos(), angles.sin()) : angles.cos();
  return gradient.to(output.device(), output.scalar_type());
}

struct Outcome {
  Tensors outputs, gradients, inputs;
  at::Tensor generator_after_forward, generator_after_backward;
};

void expect_same_outcome(const Outcome& actual, const Outcome& expected) {
  expect_same_bits(actual.outputs, expected.outputs, "output");
  expect_same_bits(actual.inputs, expected.inputs, "input");
  expect_same_bits(actual.gradients, expected.gradients, "gradient");
  EXPECT_TRUE(same_bits(actual.generator_after_forward, expected.generator_after_forward));
  EXPECT_TRUE(same_bits(actual.generator_after_backward, expected.generator_after_backward));
}

Tensors detached_copies(const Tensors& tensors) {
  Tensors copies;
  for (const at::Tensor& t : tensors) copies.push_back(t.defined() ? t.detach().clone() : t);
  return copies;
}

Tensors leaves_like(const Tensors& tensors) {
  Tensors leaves;
  for (const at::Tensor& t : tensors) leaves.push_back(leaf_like(t));
  return leaves;
}

// The rest of a run, once `fn` has run.
void finish(Outcome& outcome, const Tensors& outputs, const Tensors& inputs) {
  outcome.outputs = detached_copies(outputs);
  outcome.inputs = detached_copies(inputs);
  outcome.generator_after_forward = generator_state();
  outcome.gradients = gradients_of(outputs, inputs);
  outcome.generator_after_backward = generator_state();
}

Outcome run_plain(const TensorFn& fn, const Tensors& inputs) {
  at::manual_seed(kSeed);
  Outcome outcome;
  finish(outcome, fn(inputs), inputs);
  return outcome;
}

}  // namespace

void CleanTest::SetUp() {
  at::manual_seed(kSeed);
  sample_generator().set_current_seed(kSeed);
}

void CleanTest::TearDown() {
  expect_nothing_left();
}

void expect_nothing_left() {
  EXPECT_EQ(live_node_count(), 0);
  EXPECT_FALSE(is_checkpoint_enabled());
  EXPECT_FALSE(is_recomputing());
}

at::Tensor constant(at::IntArrayRef sizes, at::ScalarType type) {
  DisableCheckpointing disable;
  return at::randn(sizes, sample_generator(), at::TensorOptions(type));
}

at::Tensor sample(at::IntArrayRef sizes, at::ScalarType type) {
  return constant(sizes, type).requires_grad_(true);
}

at::Tensor leaf_like(const at::Tensor& t) {
  return t.detach().clone().requires_grad_(t.requires_grad());
}

::testing::AssertionResult same_bits(const at::Tensor& actual, const at::Tensor& expected) {
  if (!actual.defined() || !expected.defined()) {
    if (actual.defined() == expected.defined()) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << (actual.defined() ? "is defined, expected is not"
                                                              : "is undefined, expected is not");
  }
  if (actual.layout() != expected.layout() || actual.scalar_type() != expected.scalar_type() ||
      actual.sizes() != expected.sizes()) {
    return ::testing::AssertionFailure() << actual.toString() << actual.sizes() << ", expected " << expected.toString()
                                         << expected.sizes();
  }
  if (actual.is_sparse()) {
    at::Tensor a = actual.coalesce(), e = expected.coalesce();
    if (auto same = same_bits(a.indices(), e.indices()); !same) return same;
    return same_bits(a.values(), e.values());
  }
  if (actual.strides() != expected.strides()) {
    return ::testing::AssertionFailure() << "strides " << actual.strides() << ", expected " << expected.strides();
  }
  if (same_memory(actual, expected)) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "\n" << actual.detach() << "\nexpected\n" << expected.detach();
}

void expect_same_bits(const Tensors& actual, const Tensors& expected, const char* what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_TRUE(same_bits(actual[i], expected[i])) << what << " " << i;
  }
}

Tensors gradients_of(const Tensors& outputs, const Tensors& inputs, bool retain_graph) {
  Tensors roots, weights, leaves;
  for (const at::Tensor& output : outputs) {
    if (!output.requires_grad()) continue;
    roots.push_back(output);
    weights.push_back(output_gradient(output));
  }
  for (const at::Tensor& input : inputs) {
    if (input.requires_grad()) leaves.push_back(input);
  }
  if (roots.empty() || leaves.empty()) return {};
  Tensors gradients = torch::autograd::grad(roots, leaves, weights, retain_graph, /*create_graph=*/false,
                                            /*allow_unused=*/true);
  // So that what is counted next is what stays.
  for (const at::Tensor& leaf : leaves) wait_for_engine(leaf.device());
  return gradients;
}

at::Tensor gradient_of(const at::Tensor& output, const at::Tensor& input, bool retain_graph) {
  return gradients_of({output}, {input}, retain_graph).at(0);
}

at::Tensor generator_state() {
  const at::Tensor of_cpu = at::globalContext().defaultGenerator(at::kCPU).get_state();
  return at::hasCUDA() ? at::cat({of_cpu, at::globalContext().defaultGenerator(at::kCUDA).get_state()}) : of_cpu;
}

Stats expect_same_gradients(const TensorFn& fn, const Tensors& inputs, Policy policy) {
  Outcome plain = run_plain(fn, leaves_like(inputs));
  Stats stats;
  std::shared_ptr<const Trace> trace;
  {
    Tensors leaves = leaves_like(inputs);
    at::manual_seed(kSeed);
    Tensors outputs;
    {
      PolicyScope scope(std::move(policy));
      trace = scope.trace();
      outputs = fn(leaves);
    }
    stats.forward = trace->stats();
    Outcome outcome;
    finish(outcome, outputs, leaves);
    stats.backward = trace->stats();
    expect_same_outcome(outcome, plain);
  }
  EXPECT_EQ(stats.backward.recomputed_bytes, 0);
  EXPECT_EQ(trace->stats().live_nodes, 0);
  EXPECT_EQ(trace->stats().saved_bytes, 0);
  expect_nothing_left();
  return stats;
}

void expect_same_gradients_and_replays(const TensorFn& fn, const Tensors& inputs, int64_t recomputed_ops,
                                       Policy policy) {
  Stats stats = expect_same_gradients(fn, inputs, std::move(policy));
  EXPECT_EQ(stats.backward.recomputed_ops, recomputed_ops);
}

Policy saving(std::vector<std::string> ops) {
  return [ops = std::move(ops)](const OpContext& op) {
    for (const std::string& name : ops) {
      if (op.is(name)) return CheckpointPolicy::MUST_SAVE;
    }
    return CheckpointPolicy::PREFER_RECOMPUTE;
  };
}

at::Tensor sines(at::Tensor x, int n) {
  for (int i = 0; i < n; ++i) x = x.sin();
  return x;
}

std::string error_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "not a c10::Error: " << error.what();
    return "";
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

void expect_error(const std::function<void()>& fn, std::initializer_list<const char*> phrases) {
  std::string message = error_of(fn);
  for (const char* phrase : phrases) {
    EXPECT_NE(message.find(phrase), std::string::npos) << "no \"" << phrase << "\" in: " << message;
  }
}

void expect_next_region_works() {
  EXPECT_FALSE(is_checkpoint_enabled());
  EXPECT_FALSE(is_recomputing());
  at::Tensor x = sample({3, 5});
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope("recompute_all");
    trace = scope.trace();
    y = x.sin().cos();
  }
  EXPECT_EQ(trace->stats().recorded_ops, 2);
  at::Tensor gradient = gradient_of(y, x);
  EXPECT_EQ(trace->stats().recomputed_ops, 1);
  EXPECT_TRUE(same_bits(gradient, gradient_of(x.sin().cos(), x)));
}

int64_t storage_bytes(const at::Tensor& t) {
  return static_cast<int64_t>(t.storage().nbytes());
}

}  // namespace ac2::test
