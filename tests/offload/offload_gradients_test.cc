// Offloading changes no bit of any gradient and orders every access, whatever is offloaded, however late its copies
// run.
#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <torch/csrc/autograd/autograd.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "policies/policies.h"
#include "tests/support/offload_fixture.h"

namespace ac2::test {
namespace {

struct Program {
  std::string name;
  TensorFn fn;
  Tensors inputs;
};

at::Tensor attention(const at::Tensor& x, const at::Tensor& weight) {
  const std::vector<at::Tensor> parts = at::matmul(x, weight).chunk(3, -1);
  at::Tensor scores = at::matmul(parts[0], parts[1].transpose(-1, -2)).mul_(0.35).softmax(-1);
  return at::matmul(at::dropout(scores, 0.2, /*train=*/true), parts[2]);
}

std::vector<Program> programs() {
  std::vector<Program> all;
  all.push_back(
      {"mlp",
       [](const Tensors& in) {
         at::Tensor x = in[0];
         for (size_t i = 1; i < in.size(); i += 2) x = at::gelu(at::linear(x, in[i], in[i + 1]));
         return Tensors{x};
       },
       {sample({3, 4}), sample({6, 4}), sample({6}), sample({5, 6}), sample({5}), sample({4, 5}), sample({4})}});
  all.push_back({"transformer block",
                 [](const Tensors& in) {
                   at::Tensor x = in[0];
                   for (int block = 0; block < 2; ++block) {
                     x = x + attention(at::layer_norm(x, {4}), in[1]);
                     x = x + at::dropout(at::matmul(at::gelu(at::matmul(at::layer_norm(x, {4}), in[2])), in[3]), 0.1,
                                         /*train=*/true);
                   }
                   return Tensors{x, x.mean()};
                 },
                 {sample({2, 3, 4}), sample({4, 12}), sample({4, 8}), sample({8, 4})}});
  all.push_back({"writes in place",
                 [](const Tensors& in) {
                   at::Tensor x = at::mm(in[0], in[1]);
                   x.relu_();
                   at::Tensor y = x * 3;
                   y.add_(in[0]).sigmoid_();
                   at::Tensor z = y.sin();
                   z.narrow(0, 0, 2).mul_(0.5);
                   return Tensors{z.sin() * y, z};
                 },
                 {sample({4, 4}), sample({4, 4})}});
  all.push_back({"views",
                 [](const Tensors& in) {
                   at::Tensor x = in[0].sin();
                   at::Tensor y = x.t().narrow(1, 1, 2) * 2;
                   at::Tensor z = x.view({2, 8}).select(0, 1).exp().view({4, 2});
                   return Tensors{at::mm(y.t(), z).tanh(), x.diagonal() * x.sum(0)};
                 },
                 {sample({4, 4})}});
  all.push_back({"the same value many times",
                 [](const Tensors& in) {
                   at::Tensor x = in[0].tanh();
                   at::Tensor sum = x.sin();
                   for (int i = 0; i < 4; ++i) sum = sum + x.exp() * x * x.cos();
                   return Tensors{sum};
                 },
                 {sample({5})}});
  all.push_back({"noise that an op fills in",
                 [](const Tensors& in) { return Tensors{at::rrelu(in[0].sin(), 0.1, 0.4, /*training=*/true)}; },
                 {sample({20})}});
  all.push_back({"a long chain",
                 [](const Tensors& in) {
                   at::Tensor x = in[0];
                   for (int i = 0; i < 24; ++i) x = i % 3 == 0 ? x.sin() : x.mul(1.1).sigmoid();
                   return Tensors{x};
                 },
                 {sample({7})}});
  return all;
}

std::vector<Policy> policies_to_try() {
  return {CheckpointPolicy::MUST_CPU_OFFLOAD, CheckpointPolicy::PREFER_CPU_OFFLOAD,
          policies::offload_ops({"aten::mm", "aten::addmm", "aten::bmm", "aten::sin", "aten::sigmoid*"}),
          // In turns, so that replays start at what was offloaded.
          Policy([](const OpContext& op) {
            return op.index() % 3 == 0   ? CheckpointPolicy::MUST_CPU_OFFLOAD
                   : op.index() % 3 == 1 ? CheckpointPolicy::PREFER_SAVE
                                         : CheckpointPolicy::PREFER_RECOMPUTE;
          }),
          "recompute_all"};
}

using OffloadGradientsTest = OffloadTest;

TEST_F(OffloadGradientsTest, AreThoseOfPlainAutogradUnderAllOptions) {
  const std::vector<OffloadOptions> options = {
      all_sizes(),
      all_sizes({.inputs = true}),
      all_sizes({.in_flight_bytes = 0}),
      all_sizes({.inputs = true, .read_ahead_bytes = 0, .in_flight_bytes = 0}),
      all_sizes({.inputs = true, .read_ahead_bytes = 100, .in_flight_bytes = 100}),
      all_sizes({.in_flight_bytes = 0, .max_pinned_bytes = 2048})};
  int64_t offloaded = 0;
  for (const Program& program : programs()) {
    SCOPED_TRACE(program.name);
    int policy_number = 0;
    for (const Policy& policy : policies_to_try()) {
      SCOPED_TRACE("policy " + std::to_string(policy_number++));
      for (size_t i = 0; i < options.size(); ++i) {
        SCOPED_TRACE("options " + std::to_string(i));
        offloaded += expect_same_as_plain(program.fn, program.inputs, policy, options[i]).forward.offloaded_bytes;
        EXPECT_EQ(fake_.take_errors(), std::vector<std::string>());
      }
    }
  }
  EXPECT_GT(offloaded, 0);
}

TEST_F(OffloadGradientsTest, AreThoseOfPlainAutogradWhateverCopiesAreDoneWhen) {
  for (uint64_t seed = 1; seed <= 25; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    fake_.restart(seed);
    for (const Program& program : programs()) {
      SCOPED_TRACE(program.name);
      expect_same_as_plain(program.fn, program.inputs, CheckpointPolicy::MUST_CPU_OFFLOAD,
                           all_sizes({.inputs = seed % 2 == 0,
                                      .read_ahead_bytes = static_cast<int64_t>(seed % 5 * 64),
                                      .in_flight_bytes = static_cast<int64_t>(seed % 4 * 64)}));
      EXPECT_EQ(fake_.take_errors(), std::vector<std::string>());
    }
  }
}

TEST_F(OffloadGradientsTest, AreRightOnAStreamOfTheProgramsOwn) {
  const Program program = programs()[1];
  const auto expected = run(program.fn, program.inputs, "recompute_all", std::nullopt);
  const c10::Stream side = fake_.stream(kFakeStreams - 1);
  c10::Event made(side.device_type());
  made.record(fake_.stream(0));
  made.block(side);
  const c10::StreamGuard guard(side);
  for (const int64_t in_flight : {0, 1 << 20}) {
    const auto actual =
        run(program.fn, program.inputs, CheckpointPolicy::MUST_CPU_OFFLOAD, all_sizes({.in_flight_bytes = in_flight}));
    expect_same_bits(actual.results, expected.results, "result");
  }
}

TEST_F(OffloadGradientsTest, CanBeTakenTwiceWithARetainedGraph) {
  const at::Tensor input = sample({6});
  at::Tensor expected;
  {
    const at::Tensor x = leaf(input);
    expected = torch::autograd::grad({x.sin().cos().exp().sum()}, {x})[0].cpu();
  }
  for (const int64_t read_ahead : {0, 24, 1 << 20}) {
    const at::Tensor x = leaf(input);
    at::Tensor loss;
    std::shared_ptr<const Trace> trace;
    {
      PolicyScope scope(CheckpointPolicy::MUST_CPU_OFFLOAD,
                        {.offload = all_sizes({.read_ahead_bytes = read_ahead, .in_flight_bytes = 0})});
      trace = scope.trace();
      loss = x.sin().cos().exp().sum();
    }
    EXPECT_EQ(trace->stats().offloaded_bytes, 2 * 24);
    for (int i = 0; i < 3; ++i) {
      const int64_t before = device_bytes();
      EXPECT_TRUE(same_bits(torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true)[0].cpu(), expected));
      // Values in host memory stay there; those that came back do not.
      EXPECT_EQ(trace->stats().offloaded_bytes, 2 * 24);
      EXPECT_EQ(device_bytes(), before);
    }
    loss = at::Tensor();
    EXPECT_EQ(trace->stats().offloaded_bytes, 0);
  }
}

TEST_F(OffloadGradientsTest, CanBeDifferentiatedAgain) {
  const at::Tensor input = sample({6});
  const auto second_derivative = [&](bool offload) {
    const at::Tensor x = leaf(input);
    at::Tensor y;
    {
      std::optional<PolicyScope> scope;
      if (offload) scope.emplace(CheckpointPolicy::MUST_CPU_OFFLOAD, ScopeOptions{.offload = all_sizes()});
      y = (x.sin() * x).exp().sum();
    }
    const at::Tensor first = torch::autograd::grad({y}, {x}, {}, true, /*create_graph=*/true)[0];
    return Tensors{first.detach().cpu(), torch::autograd::grad({(first * first).sum()}, {x})[0].cpu()};
  };
  expect_same_bits(second_derivative(true), second_derivative(false), "derivative");
}

TEST_F(OffloadGradientsTest, AreRightWithABackwardInsideTheRegion) {
  const at::Tensor input = sample({6});
  const auto gradients = [&](bool offload) {
    const at::Tensor x = leaf(input);
    std::optional<PolicyScope> scope;
    if (offload) scope.emplace(CheckpointPolicy::MUST_CPU_OFFLOAD, ScopeOptions{.offload = all_sizes()});
    at::Tensor y = x.sin().exp();
    at::Tensor first = torch::autograd::grad({y.cos().sum()}, {x}, {}, /*retain_graph=*/true)[0];
    y = y.tanh().mul(first);
    return Tensors{first.cpu(), torch::autograd::grad({y.sum()}, {x})[0].cpu()};
  };
  const Tensors plain = gradients(false);
  expect_same_bits(gradients(true), plain, "gradient");
}

TEST_F(OffloadGradientsTest, AreRightInSeveralThreads) {
  const std::vector<Program> all = programs();
  std::vector<Tensors> expected(all.size());
  // Without the random ones: generators are the threads' to share.
  const std::vector<size_t> chosen = {0, 2, 3, 4, 5};
  for (const size_t i : chosen) expected[i] = run(all[i].fn, all[i].inputs, "recompute_all", std::nullopt).results;
  std::vector<std::thread> threads;
  for (const size_t i : chosen) {
    threads.emplace_back([&, i] {
      for (int repeat = 0; repeat < 4; ++repeat) {
        const auto actual = run(all[i].fn, all[i].inputs, CheckpointPolicy::MUST_CPU_OFFLOAD,
                                all_sizes({.inputs = repeat % 2 == 0, .read_ahead_bytes = 100, .in_flight_bytes = 64}));
        expect_same_bits(actual.results, expected[i], all[i].name.c_str());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(OffloadGradientsTest, AreRightInSeveralBackwardsOfOneTraceAtOnce) {
  const at::Tensor input = sample({6});
  constexpr int kThreads = 3;
  const auto losses_of = [](const at::Tensor& x) {
    at::Tensor y = x.sin().exp();
    Tensors losses;
    for (int i = 0; i < kThreads; ++i) losses.push_back((y * (i + 1)).cos().tanh().sum());
    return losses;
  };
  Tensors expected;
  {
    const at::Tensor x = leaf(input);
    for (const at::Tensor& loss : losses_of(x)) {
      expected.push_back(torch::autograd::grad({loss}, {x}, {}, /*retain_graph=*/true)[0].cpu());
    }
  }
  const at::Tensor x = leaf(input);
  Tensors losses;
  {
    PolicyScope scope(CheckpointPolicy::MUST_CPU_OFFLOAD,
                      {.offload = all_sizes({.read_ahead_bytes = 48, .in_flight_bytes = 0})});
    losses = losses_of(x);
  }
  std::vector<std::thread> threads;
  Tensors actual(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back(
        [&, i] { actual[i] = torch::autograd::grad({losses[i]}, {x}, {}, /*retain_graph=*/true)[0].cpu(); });
  }
  for (std::thread& thread : threads) thread.join();
  expect_same_bits(actual, expected, "gradient");
}

}  // namespace
}  // namespace ac2::test
