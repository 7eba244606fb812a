#include "tests/coming_from/entry.h"

namespace ac2::test {

namespace {

struct Outcome {
  at::Tensor output, generator;
  Tensors gradients;
  Stats stats;
};

Outcome run(const std::function<at::Tensor()>& program, const Tensors& leaves,
            const std::shared_ptr<const Trace>& trace) {
  at::manual_seed(20240229);
  Outcome outcome;
  at::Tensor output = program();
  outcome.output = output.detach().clone();
  if (trace) outcome.stats.forward = trace->stats();
  outcome.gradients = gradients_of({output}, leaves);
  if (trace) outcome.stats.backward = trace->stats();
  outcome.generator = generator_state();
  return outcome;
}

}  // namespace

Tensors leaves_of(const torch::nn::Module& module, const at::Tensor& x) {
  Tensors leaves = module.parameters();
  leaves.push_back(x);
  return leaves;
}

at::Tensor wave(const at::Tensor& x) {
  return x.sin().cos();
}

at::Tensor products(const at::Tensor& x, const at::Tensor& w) {
  return x.mm(w).sin().mm(w).cos();
}

Stats EntryTest::expect_same(const Program& ours, const Program& plain, const Tensors& leaves) {
  trace = nullptr;
  const Outcome actual = run(ours, leaves, trace);
  const Outcome expected = run(plain, leaves, nullptr);
  EXPECT_TRUE(same_bits(actual.output, expected.output));
  EXPECT_TRUE(same_bits(actual.generator, expected.generator));
  expect_same_bits(actual.gradients, expected.gradients, "gradient");
  EXPECT_EQ(actual.stats.backward.recomputed_bytes, 0);
  EXPECT_EQ(actual.stats.backward.saved_bytes, 0);
  expect_nothing_left();
  return actual.stats;
}

void EntryTest::expect_same_and_replays(const Program& ours, const Program& plain, const Tensors& leaves,
                                        int64_t recomputed_ops) {
  const Stats stats = expect_same(ours, plain, leaves);
  EXPECT_NE(trace, nullptr) << "no region was watched";
  EXPECT_EQ(stats.backward.recomputed_ops, recomputed_ops);
}

Stats EntryTest::run_products(const Policy& policy) {
  return expect_same(
      [&] {
        const PolicyScope scope(policy);
        watch(scope);
        return products(x, w);
      },
      [&] { return products(x, w); }, {x, w});
}

}  // namespace ac2::test
