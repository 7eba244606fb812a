// A region that lasts: what it holds depends on what the program has, not on how long it has run.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cctype>
#include <deque>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "ac2/internal/region/resting.h"
#include "benchmarks/networks/loops.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using LastingRegionTest = CleanTest;

// Tests run side by side, and threads that spin for ops this small would take minutes.
const bool one_thread = [] {
  at::set_num_threads(1);
  return true;
}();

constexpr int kFew = 50;
constexpr int kMany = 200;
// docs/guide.md, "Where to open a region": what is kept for values that no gradient is recorded for.
constexpr int64_t kNodes = 1024;
constexpr int64_t kBytes = int64_t{1} << 20;
// A look is taken at every 64th node.
constexpr int64_t kBetweenLooks = 64;

struct Sizes {
  int64_t nodes, bytes;
};

Sizes sizes_of(const Trace& trace) {
  const TraceStats stats = trace.stats();
  return {stats.live_nodes, stats.saved_bytes};
}

// A step with work of all kinds that needs no gradient: what the region makes and has taken is read and overwritten.
std::vector<at::Tensor> step_with_work_without_gradients(const std::function<void()>& begin_work,
                                                         const std::function<void()>& end_work) {
  const at::Tensor x = at::linspace(-1, 1, 12).view({3, 4}).requires_grad_();
  at::Tensor buffer = at::linspace(0.5, 2, 4), other = at::ones({3, 4});
  at::Tensor y = (x + buffer).sin() + other;
  at::Tensor mask;
  {
    const at::NoGradGuard no_grad;
    begin_work();
    mask = (y > 0).to(at::kFloat) + at::rand({3, 4});
    buffer.mul_(mask.sum(0));
    other.index_put_({at::tensor({1})}, y.select(0, 2));
    at::sin_out(other, y.cos());
    end_work();
  }
  at::Tensor z = (y + mask + buffer).exp().mul(0.1).tanh();
  {
    const at::NoGradGuard no_grad;
    buffer.zero_();
    mask.normal_();
  }
  z = z + (buffer + x).cos();
  return torch::autograd::grad({z.sum()}, {x});
}

void run(const benchmarks::Rounds& rounds, int count) {
  for (int i = 0; i < count; ++i) rounds.round();
}

struct LoopCase {
  benchmarks::Loop loop;
  std::string policy;
};

void PrintTo(const LoopCase& loop_case, std::ostream* out) {
  *out << loop_case.loop.name << ", " << loop_case.policy;
}

class LoopTest : public CleanTest, public ::testing::WithParamInterface<LoopCase> {
 protected:
  static PolicyScope open() {
    const std::string& policy = GetParam().policy;
    return policy == "budget" ? PolicyScope({.memory_budget = 1 << 20}) : PolicyScope(Policy(policy));
  }
};

TEST_P(LoopTest, HoldsNoMoreAfterManyRoundsThanAfterAFew) {
  const benchmarks::Rounds rounds = GetParam().loop.begin();
  const PolicyScope scope = open();
  run(rounds, kFew);
  const Sizes few = sizes_of(*scope.trace());
  run(rounds, kMany - kFew);
  const Sizes many = sizes_of(*scope.trace());
  if (GetParam().loop.has_backward) {
    EXPECT_EQ(many.nodes, few.nodes);
    EXPECT_EQ(many.bytes, few.bytes);
  } else {
    EXPECT_LE(many.nodes, 2 * kNodes + kBetweenLooks);
    EXPECT_LE(many.bytes, 2 * kBytes + few.bytes);
  }
}

TEST_P(LoopTest, ComputesWhatItComputesWithoutARegion) {
  const benchmarks::Rounds plain = GetParam().loop.begin();
  run(plain, kFew);
  const benchmarks::Rounds rounds = GetParam().loop.begin();
  {
    const PolicyScope scope = open();
    run(rounds, kFew);
  }
  expect_same_bits(rounds.state(), plain.state(), "state");
}

std::vector<LoopCase> loop_cases() {
  std::vector<LoopCase> cases;
  for (const benchmarks::Loop& loop : benchmarks::loops()) {
    for (const char* policy : {"recompute_all", "save_compute_intensive", "must_save_all", "budget"}) {
      cases.push_back({loop, policy});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Loops, LoopTest, ::testing::ValuesIn(loop_cases()), [](const auto& info) {
  std::string name = info.param.loop.name + "_" + info.param.policy;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
});

TEST_F(LastingRegionTest, ABackwardEndsWhatTheRegionKnowsOfALivingResult) {
  const at::Tensor x = sample({4});
  const PolicyScope scope("recompute_all");
  const at::Tensor kept = x.detach().sin();
  const at::Tensor loss = x.exp().sum();
  EXPECT_EQ(scope.trace()->stats().live_nodes, 3);
  loss.backward();
  EXPECT_EQ(scope.trace()->stats().live_nodes, 0);
  // From now on it is saved by reference, as what came from outside.
  const at::Tensor y = kept * x;
  EXPECT_EQ(scope.trace()->stats().saved_bytes, 2 * 16);
  y.sum().backward();
  EXPECT_EQ(scope.trace()->stats().recomputed_ops, 1);  // exp alone
}

TEST_F(LastingRegionTest, ABackwardLeavesWhatAnotherGraphStillWants) {
  const at::Tensor x = sample({4});
  const PolicyScope scope("recompute_all");
  const at::Tensor other = x.sin().cos();  // cos wants sin's result
  x.exp().sum().backward();
  const int64_t replayed = scope.trace()->stats().recomputed_ops;
  other.sum().backward();
  EXPECT_EQ(scope.trace()->stats().recomputed_ops, replayed + 1);
}

TEST_F(LastingRegionTest, ABackwardThatIsDifferentiatedInTurnEndsNothing) {
  const at::Tensor x = sample({4});
  const PolicyScope scope("recompute_all");
  const at::Tensor kept = x.detach().sin();
  const at::Tensor y = x.pow(3).sum();
  const at::Tensor gradient = torch::autograd::grad({y}, {x}, {}, std::nullopt, /*create_graph=*/true)[0];
  const int64_t held = scope.trace()->stats().saved_bytes;
  at::Tensor z = (kept * x).sum();
  EXPECT_EQ(scope.trace()->stats().saved_bytes, held);  // x is held already, and kept is recomputed from it
  (gradient.sum() + z).backward();
}

TEST_F(LastingRegionTest, AMaskMadeWithoutGradientIsRecomputedAsBefore) {
  const at::Tensor x = sample({64, 64}), ones = at::ones({64, 64});
  at::Tensor y;
  const PolicyScope scope("recompute_all");
  {
    at::Tensor mask;
    {
      const c10::NoGradGuard no_grad;
      mask = ones.tril().mul(0.5);
    }
    y = x * mask;
  }
  EXPECT_EQ(scope.trace()->stats().saved_bytes, 2 * 64 * 64 * 4);  // x and ones
  y.sum().backward();
  EXPECT_EQ(scope.trace()->stats().recomputed_ops, 2);
}

TEST_F(LastingRegionTest, AReplayReachesNoFurtherBackThanTheBound) {
  const at::Tensor x = sample({4});
  const PolicyScope scope("recompute_all");
  at::Tensor h = constant({4});
  {
    const c10::NoGradGuard no_grad;
    for (int i = 0; i < 10'000; ++i) h = h.cos();
  }
  at::Tensor y = x * h;
  h.reset();
  y.sum().backward();
  EXPECT_LE(scope.trace()->stats().recomputed_ops, kNodes + kBetweenLooks);
}

TEST_F(LastingRegionTest, BackwardsThatLeaveTheirGraphsPutNoLookOff) {
  const at::Tensor w = sample({4}), x = constant({4});
  const PolicyScope scope("recompute_all");
  for (int i = 0; i < 2000; ++i) {
    const at::Tensor loss = (w * x).sin().sum();
    loss.backward({}, /*retain_graph=*/true);
    const c10::NoGradGuard no_grad;
    w.sub_(0.01 * w.grad());
    w.mutable_grad().reset();
    ASSERT_LE(scope.trace()->stats().live_nodes, kNodes + 2 * kBetweenLooks) << i;
  }
}

TEST_F(LastingRegionTest, AStateThatIsWrittenToIsBoundedWhereverInARoundALookFalls) {
  for (int phase = 0; phase < 16; ++phase) {
    const PolicyScope scope("recompute_all");
    const c10::NoGradGuard no_grad;
    const at::Tensor one = constant({1}), other = constant({4});
    at::Tensor h = constant({4});
    for (int i = 0; i < phase; ++i) one.cos();
    int64_t most = 0;
    for (int round = 0; round < 2'000; ++round) {
      const int64_t before = scope.trace()->stats().recorded_ops;
      h = h * 0.9 + other;
      h.mul_(0.9).add_(other);
      // 16 ops a round, so that each look falls at the same op.
      while ((scope.trace()->stats().recorded_ops - before) % 16 != 0) one.cos();
      most = std::max(most, scope.trace()->stats().live_nodes);
    }
    EXPECT_LE(most, kNodes + 2 * kBetweenLooks) << "phase " << phase;
  }
}

TEST_F(LastingRegionTest, ALongChainOfWritesThatRequiresAGradientIsReplayedAsBefore) {
  const at::Tensor x = sample({4});
  const PolicyScope scope("recompute_all");
  at::Tensor h = x.sin();
  for (int i = 0; i < 5'000; ++i) h.add_(1e-3);
  const at::Tensor y = h.cos();
  h.reset();
  y.sum().backward();
  EXPECT_EQ(scope.trace()->stats().recomputed_ops, 1 + 5'000);
}

TEST_F(LastingRegionTest, BytesThatOnlyAReplayWouldNeedAreLetGo) {
  const PolicyScope scope("recompute_all");
  at::Tensor sum = at::zeros({1024});
  const c10::NoGradGuard no_grad;
  for (int i = 0; i < 100; ++i) {
    // 256 KiB from outside, which the program drops at once.
    std::vector<float> numbers(64 * 1024, 0.25F);
    auto* owned = new std::vector<float>(std::move(numbers));
    const at::Tensor batch = at::from_blob(owned->data(), {64, 1024}, [owned](void*) { delete owned; });
    sum = sum + batch.sum(0);
  }
  // A look at every 64th node, and 2 nodes and 256 KiB a round.
  EXPECT_LE(scope.trace()->stats().saved_bytes, kBytes + kBetweenLooks / 2 * (256 << 10));
}

// Of each round `kept` graphs outlive it, so that some graph always wants the states before the one that is carried
// over.
void carry_over_while_graphs_overlap(int rounds, size_t kept, int ops, const std::function<void()>& after_round) {
  const at::Tensor w = sample({4});
  std::deque<at::Tensor> losses;
  at::Tensor h = constant({4});
  for (int round = 0; round < rounds; ++round) {
    at::Tensor y = h;
    for (int i = 0; i < ops; ++i) y = (y * w).tanh();
    losses.push_back(y.sum());
    if (losses.size() > kept) losses.pop_front();
    h = y.detach();
    after_round();
  }
}

TEST_F(LastingRegionTest, AStateIsBoundedThoughGraphsOverlapFromRoundToRound) {
  for (const size_t kept : {1, 2, 5}) {
    for (const char* policy : {"recompute_all", "save_compute_intensive", "must_save_all"}) {
      const PolicyScope scope{Policy(policy)};
      int64_t most = 0;
      carry_over_while_graphs_overlap(5'000, kept, 1,
                                      [&] { most = std::max(most, scope.trace()->stats().live_nodes); });
      EXPECT_LE(most, 2 * kNodes) << kept << " graphs, " << policy;
    }
  }
}

// Most of the tensors without a gradient that appear in a round do so while the state has a graph.
TEST_F(LastingRegionTest, AStateThatHasAGraphInMostOfARoundIsBoundedThoughGraphsOverlap) {
  const at::Tensor x = constant({4, 4}), w = sample({4, 4}), v = sample({4, 4});
  const PolicyScope scope("recompute_all");
  std::deque<at::Tensor> losses;
  at::Tensor h = constant({4, 4}), total = at::zeros({});
  int64_t most = 0;
  for (int round = 0; round < 2'000; ++round) {
    h = h.mm(w).sigmoid().mm(v).tanh();
    const at::Tensor y = x + h;
    losses.push_back(y.square().mean());
    if (losses.size() > 2) losses.pop_front();
    for (const at::Tensor& g :
         torch::autograd::grad({losses.back()}, {w, v}, {}, std::nullopt, /*create_graph=*/true)) {
      total = total * 0.9 + g.detach().abs().mean();
    }
    h = ((h + y) * 0.5).detach();
    most = std::max(most, scope.trace()->stats().live_nodes);
  }
  EXPECT_LE(most, 2 * kNodes);
}

// stats() forgets what has died, so it is not asked.
TEST_F(LastingRegionTest, AStateUnderAPolicyThatSavesIsBoundedThoughNobodyAsksForStats) {
  const at::Tensor w = sample({4, 4}).requires_grad_();
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> saved;
  size_t most = 0;
  const PolicyScope scope{Policy("save_compute_intensive")};
  at::Tensor h = constant({4, 4});
  for (int round = 0; round < 20'000; ++round) {
    at::Tensor y = h.mm(w);
    saved.emplace_back(y.storage().getWeakStorageImpl());
    for (int i = 0; i < 3; ++i) y = y.tanh();
    h = y.detach();
    saved.erase(std::remove_if(saved.begin(), saved.end(), [](const auto& storage) { return storage.expired(); }),
                saved.end());
    most = std::max(most, saved.size());
  }
  // Four nodes are recorded for each that is saved.
  EXPECT_LE(most, static_cast<size_t>(kNodes));
}

TEST_F(LastingRegionTest, AStateIsBoundedThoughTheGraphsThatOverlapAreLarge) {
  const PolicyScope scope("recompute_all");
  int64_t most = 0;
  // 2 * 1,001 nodes that the graphs want, and up to as many of the round that runs.
  carry_over_while_graphs_overlap(60, 2, 500, [&] { most = std::max(most, scope.trace()->stats().live_nodes); });
  EXPECT_LE(most, 12 * kNodes);
}

TEST_F(LastingRegionTest, BytesForAStateAreBoundedThoughGraphsOverlap) {
  constexpr int64_t kNumbers = 16 * 1024;
  const at::Tensor w = sample({kNumbers});
  std::deque<at::Tensor> losses;
  const PolicyScope scope("recompute_all");
  at::Tensor h = constant({kNumbers});
  int64_t most = 0;
  for (int round = 0; round < 1'000; ++round) {
    // 64 KiB from outside, as many as the state has, which the program drops at once.
    auto* owned = new std::vector<float>(kNumbers, 0.25F);
    const at::Tensor batch = at::from_blob(owned->data(), {kNumbers}, [owned](void*) { delete owned; });
    const at::Tensor y = (h * w + batch).tanh();
    losses.push_back(y.sum());
    if (losses.size() > 2) losses.pop_front();
    h = y.detach();
    most = std::max(most, scope.trace()->stats().saved_bytes);
  }
  EXPECT_LE(most, 16 * kBytes);
}

TEST_F(LastingRegionTest, ALongForwardThatLogsItsActivationsSavesNoneOfThem) {
  const at::Tensor x = sample({256}), w = sample({256});
  TraceStats stats[2];
  for (const bool logs : {false, true}) {
    const PolicyScope scope("recompute_all");
    at::Tensor h = x;
    float logged = 0;
    for (int i = 0; i < 2'000; ++i) {
      h = (h * w).tanh() + x;
      if (logs) logged += h.detach().mean().item<float>();
    }
    stats[logs] = scope.trace()->stats();
    h.sum().backward();
    EXPECT_EQ(scope.trace()->stats().recomputed_ops, 3 * 2'000 - 1);
  }
  EXPECT_EQ(stats[true].live_nodes, stats[false].live_nodes);
  EXPECT_EQ(stats[true].saved_bytes, stats[false].saved_bytes);
}

TEST_F(LastingRegionTest, LayoutsThatNobodyUsesAreForgotten) {
  // A slice that lies elsewhere in each round. What a region knows of layouts is not in its stats: this is for the
  // sanitizers, and for whoever looks at the memory of the process.
  const at::Tensor data = constant({20'000});
  const at::Tensor x = sample({4});
  const PolicyScope scope("recompute_all");
  for (int i = 0; i + 4 <= data.numel(); i += 4) {
    (x * data.slice(0, i, i + 4)).sin().sum().backward();
  }
  EXPECT_EQ(scope.trace()->stats().live_nodes, 0);
}

// Backward keeps the graph, which goes before the optimizer writes to the parameters: nothing wants their old values.
class RetainedGraphs {
 public:
  explicit RetainedGraphs(double momentum) : momentum_(momentum) {
    at::manual_seed(3);
    for (int i = 0; i < kLayers; ++i) {
      weights_.push_back((at::randn({kSide, kSide}) * 0.1).requires_grad_());
    }
  }
  void round() {
    at::Tensor x = at::ones({kSide, kSide});
    for (const at::Tensor& weight : weights_) x = x.mm(weight).tanh();
    const Tensors gradients =
        torch::autograd::grad({x.pow(2).sum()}, weights_, /*grad_outputs=*/{}, /*retain_graph=*/true);
    x = at::Tensor();
    const at::NoGradGuard no_grad;
    for (int i = 0; i < kLayers; ++i) {
      if (velocities_.size() < weights_.size()) {
        velocities_.push_back(gradients[i].clone());
      } else {
        velocities_[i].mul_(momentum_).add_(gradients[i]);
      }
      weights_[i].sub_(velocities_[i] * 0.01);
    }
  }
  const Tensors& weights() const { return weights_; }

  static constexpr int kLayers = 6;
  static constexpr int64_t kSide = 32;
  static constexpr int64_t kMatrix = kSide * kSide * 4;  // bytes

 private:
  double momentum_;
  Tensors weights_, velocities_;
};

Tensors weights_after(int rounds, double momentum) {
  RetainedGraphs graphs(momentum);
  for (int i = 0; i < rounds; ++i) graphs.round();
  return graphs.weights();
}

TEST_F(LastingRegionTest, OnceARetainedGraphIsGoneWritesToParametersCopyNothing) {
  const Tensors plain = weights_after(20, 0.9);
  PolicyScope scope("recompute_all");
  const Tensors recomputed = weights_after(20, 0.9);
  expect_same_bits(recomputed, plain, "weights");
  const TraceStats stats = scope.trace()->stats();
  EXPECT_EQ(stats.copied_bytes, 0);
}

TEST_F(LastingRegionTest, OnceARetainedGraphIsGoneABudgetHasRoomAgain) {
  const Tensors plain = weights_after(20, 0.9);
  for (int matrices = 4; matrices <= 20; ++matrices) {
    SCOPED_TRACE(matrices);
    PolicyScope scope({.memory_budget = MemoryBudget(matrices * RetainedGraphs::kMatrix, /*modelled_costs=*/true)});
    const Tensors budgeted = weights_after(20, 0.9);
    expect_same_bits(budgeted, plain, "weights");
  }
}

TEST_F(LastingRegionTest, ARegionThatRestsRecordsNothingWhileGradModeIsOffAndGivesPlainGradients) {
  const auto nothing = [] {};
  at::manual_seed(1);
  const std::vector<at::Tensor> plain = step_with_work_without_gradients(nothing, nothing);
  for (const char* policy : {"recompute_all", "must_save_all"}) {
    for (const bool rests : {true, false}) {
      at::manual_seed(1);
      const PolicyScope scope(policy);
      if (rests) internal::let_region_rest();
      int64_t before = 0, recorded = 0;
      const auto begin = [&] { before = scope.trace()->stats().recorded_ops; };
      const auto end = [&] { recorded = scope.trace()->stats().recorded_ops - before; };
      const std::vector<at::Tensor> gradients = step_with_work_without_gradients(begin, end);
      EXPECT_TRUE(same_bits(gradients.at(0), plain.at(0))) << policy;
      EXPECT_EQ(recorded == 0, rests) << recorded;
    }
  }
}

// Writes to what a replay needs, through views too, numbers that are read, and references that ops return.
std::vector<at::Tensor> step_that_writes_where_a_region_rests() {
  const at::Tensor weight = at::linspace(0.5, 1.5, 8).requires_grad_();
  const at::Tensor x = at::linspace(-1, 1, 8), y = at::ones({2, 4});
  const at::Tensor sum = (weight + x).cos() + (weight.view({2, 4}) + y).sin().reshape({8});
  std::vector<at::Tensor> found;
  {
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(x.add_(1).is_same(x));
    EXPECT_TRUE(x.copy_(x.flip(0)).is_same(x));
    x.select(0, 2).fill_(3);
    x.slice(0, 4, 6).mul_(0.5);
    y.t().unsqueeze(0).index_put_({at::tensor({0})}, at::linspace(0, 1, 8).view({4, 2}));
    EXPECT_EQ(x.select(0, 2).item<float>(), 3.0F);
    EXPECT_TRUE((x == x).all().item<bool>());
    EXPECT_TRUE(x.select(0, 2).is_nonzero());
    found = {at::outer(x, x).cumsum(0), at::stack({x, x}).permute({1, 0}).contiguous(), x.to(at::kHalf),
             y.expand({3, 2, 4})};
    found.push_back(at::linear(y, at::cat({y, y})).matmul(at::ones({4, 1})));
    found.push_back(y.clone());
  }
  found.push_back(torch::autograd::grad({(sum * x).sum()}, {weight}).at(0));
  return found;
}

TEST_F(LastingRegionTest, ARegionThatRestsSeesWritesOfAllKinds) {
  const std::vector<at::Tensor> plain = step_that_writes_where_a_region_rests();
  for (const char* policy : {"recompute_all", "must_save_all"}) {
    const PolicyScope scope(policy);
    internal::let_region_rest();
    const std::vector<at::Tensor> found = step_that_writes_where_a_region_rests();
    ASSERT_EQ(found.size(), plain.size());
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_TRUE(same_bits(found[i], plain[i])) << policy << ", " << i;
    }
  }
}

}  // namespace
}  // namespace ac2::test
