// Regions, backward and the end of graphs on several threads. No test depends on how they
// interleave: results must be right for any.
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <atomic>
#include <barrier>
#include <functional>
#include <future>
#include <optional>
#include <thread>
#include <vector>

#include "ac2/report.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using ThreadsTest = CleanTest;

constexpr int kThreads = 4;

void on_threads(const std::function<void(int)>& fn) {
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(fn, i);
  for (std::thread& thread : threads) thread.join();
}

at::Tensor network(const at::Tensor& x, const at::Tensor& w) {
  at::Tensor y = x;
  for (int i = 0; i < 5; ++i) y = y.mm(w).tanh().mul(1.5).sin();
  return y;
}

TEST_F(ThreadsTest, DataParallelThreadsEachWithRegionsOfTheirOwn) {
  at::Tensor w = sample({6, 6});
  std::vector<at::Tensor> inputs;
  std::vector<Tensors> expected, actual(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    inputs.push_back(sample({3, 6}));
    expected.push_back(gradients_of({network(inputs[i], w)}, {inputs[i], w}));
  }
  on_threads([&](int i) {
    for (int step = 0; step < 10; ++step) {
      at::Tensor y = apply_ac_policy_fn(network, step % 2 ? "recompute_all" : "must_save_all", inputs[i], w);
      actual[i] = gradients_of({y}, {inputs[i], w});
    }
  });
  for (int i = 0; i < kThreads; ++i) expect_same_bits(actual[i], expected[i], "gradient");
}

TEST_F(ThreadsTest, BackwardOnAnotherThreadThanForward) {
  at::Tensor x = sample({3, 6}), w = sample({6, 6});
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  std::thread([&] {
    PolicyScope scope("recompute_all");
    trace = scope.trace();
    y = network(x, w);
  }).join();
  Tensors gradients;
  std::thread([&] { gradients = gradients_of({y}, {x, w}); }).join();
  expect_same_bits(gradients, gradients_of({network(x, w)}, {x, w}), "gradient");
  EXPECT_EQ(trace->stats().recomputed_bytes, 0);
}

TEST_F(ThreadsTest, OneTraceUsedBySeveralBackwardsAtOnce) {
  at::Tensor x = sample({3, 6}), w = sample({6, 6});
  Tensors expected = gradients_of({network(x, w)}, {x, w});
  at::Tensor y;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope("recompute_all");
    trace = scope.trace();
    y = network(x, w);
  }
  std::barrier start(kThreads);
  std::vector<Tensors> actual(kThreads);
  on_threads([&](int i) {
    start.arrive_and_wait();
    for (int step = 0; step < 20; ++step) actual[i] = gradients_of({y}, {x, w}, /*retain_graph=*/true);
  });
  for (int i = 0; i < kThreads; ++i) expect_same_bits(actual[i], expected, "gradient");
  EXPECT_EQ(trace->stats().recomputed_bytes, 0);
}

TEST_F(ThreadsTest, DifferentPartsOfOneTraceAtOnce) {
  at::Tensor x = sample({3, 6}), w = sample({6, 6});
  Tensors outputs;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope("recompute_all");
    trace = scope.trace();
    at::Tensor shared = network(x, w);
    for (int i = 0; i < kThreads; ++i) outputs.push_back((shared * (i + 1)).sin().cos());
  }
  std::vector<at::Tensor> expected, actual(kThreads);
  at::Tensor shared = network(x, w);
  for (int i = 0; i < kThreads; ++i) {
    expected.push_back(gradient_of((shared * (i + 1)).sin().cos(), x, true));
  }
  std::barrier start(kThreads);
  on_threads([&](int i) {
    start.arrive_and_wait();
    actual[i] = gradient_of(outputs[i], x, /*retain_graph=*/true);
  });
  for (int i = 0; i < kThreads; ++i) EXPECT_TRUE(same_bits(actual[i], expected[i])) << i;
  EXPECT_EQ(trace->stats().recomputed_bytes, 0);
}

TEST_F(ThreadsTest, ARegionIsRecordedWhileAnotherThreadIsInBackward) {
  at::Tensor x = sample({3, 6}), w = sample({6, 6});
  Tensors expected = gradients_of({network(x, w)}, {x, w});
  std::atomic<bool> in_backward = false, recorded = false;
  at::Tensor y;
  {
    PolicyScope scope("recompute_all");
    at::Tensor middle = network(x, w);
    middle.register_hook([&](const at::Tensor& g) {
      in_backward = true;
      in_backward.notify_one();
      recorded.wait(false);  // stays in backward until the other thread's region is closed
      return g;
    });
    y = middle.view({-1}).view({3, 6});
  }
  Tensors gradients;
  std::thread backward([&] { gradients = gradients_of({y}, {x, w}); });
  in_backward.wait(false);
  std::shared_ptr<const Trace> trace;
  at::Tensor z;
  {
    PolicyScope scope("recompute_all");
    trace = scope.trace();
    z = network(x, w);
  }
  // Five times mm, tanh, mul and sin: nothing of the other thread's backward.
  EXPECT_EQ(trace->stats().recorded_ops, 20);
  recorded = true;
  recorded.notify_one();
  backward.join();
  expect_same_bits(gradients, expected, "gradient");
  expect_same_bits(gradients_of({z}, {x, w}), expected, "gradient");
}

TEST_F(ThreadsTest, BackwardRunsInAThreadThatHasARegionOpen) {
  at::Tensor x = sample({3, 6}), w = sample({6, 6});
  Tensors expected = gradients_of({network(x, w)}, {x, w});
  at::Tensor y = apply_ac_policy_fn(network, "recompute_all", x, w);
  std::thread([&] {
    at::Tensor z;
    PolicyScope scope("must_save_all");
    z = network(x, w);
    expect_same_bits(gradients_of({y}, {x, w}), expected, "gradient");
    z = z.cos();
    // 20 before and one after; output gradients are made by a few more ops of the test's own.
    EXPECT_GE(scope.trace()->stats().recorded_ops, 21);
    gradients_of({z}, {x, w});
  }).join();
}

TEST_F(ThreadsTest, AGraphIsDroppedOnAnotherThreadWhileItsRegionIsOpen) {
  at::Tensor x = sample({3, 6}), w = sample({6, 6});
  PolicyScope scope("recompute_all");
  at::Tensor y = network(x, w);
  std::thread([dropped = std::move(y)]() mutable { dropped.reset(); }).join();
  EXPECT_EQ(scope.trace()->stats().saved_bytes, 0);
  y = network(x, w);
  expect_same_bits(gradients_of({y}, {x, w}), gradients_of({network(x, w)}, {x, w}), "gradient");
}

TEST_F(ThreadsTest, GraphsAreDroppedWhileOthersAreRecorded) {
  at::Tensor x = sample({3, 6}), w = sample({6, 6});
  Tensors expected = gradients_of({network(x, w)}, {x, w});
  std::vector<at::Tensor> dropped(kThreads);
  for (at::Tensor& y : dropped) y = apply_ac_policy_fn(network, "recompute_all", x, w);
  std::barrier start(kThreads);
  on_threads([&](int i) {
    start.arrive_and_wait();
    at::Tensor y = apply_ac_policy_fn(network, "recompute_all", x, w);
    dropped[(i + 1) % kThreads].reset();
    expect_same_bits(gradients_of({y}, {x, w}), expected, "gradient");
  });
}

// A checkpoint written by hand: its backward runs its forward again, in a region, and takes a backward of that.
struct RegionInsideBackward : torch::autograd::Function<RegionInsideBackward> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const at::Tensor& w,
                            int64_t depth, bool in_regions) {
    context->save_for_backward({x, w});
    context->saved_data["depth"] = depth;
    context->saved_data["in_regions"] = in_regions;
    return forward_of(x, w, depth, in_regions);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const at::AutoGradMode enable(true);
    Tensors leaves;
    for (const at::Tensor& saved : context->get_saved_variables())
      leaves.push_back(saved.detach().requires_grad_(true));
    const int64_t depth = context->saved_data["depth"].toInt();
    const bool in_regions = context->saved_data["in_regions"].toBool();
    std::optional<PolicyScope> scope;
    if (in_regions) scope.emplace("recompute_all");
    at::Tensor y = forward_of(leaves[0], leaves[1], depth, in_regions);
    scope.reset();
    Tensors result = torch::autograd::grad({y}, leaves, {gradients[0]});
    return {result[0], result[1], at::Tensor(), at::Tensor()};
  }
  static at::Tensor forward_of(const at::Tensor& x, const at::Tensor& w, int64_t depth, bool in_regions) {
    at::Tensor y = network(x, w);
    return depth > 0 ? network(apply(y, w, depth - 1, in_regions), w) : y;
  }
};

TEST_F(ThreadsTest, ReentrantBackwardsWithRegionsInsideThemOnSeveralThreads) {
  at::Tensor x = sample({3, 6}), w = sample({6, 6});
  Tensors expected = gradients_of({RegionInsideBackward::apply(x, w, 2, false)}, {x, w});
  std::barrier start(kThreads);
  on_threads([&](int i) {
    start.arrive_and_wait();
    for (int step = 0; step < 3; ++step) {
      // Two nodes made at once on one leaf are a race of LibTorch's (Node::topological_nr() notes that there is a
      // parent), which is seen here because apply() is a template.
      const at::Tensor own_x = x.view_as(x), own_w = w.view_as(w);
      at::Tensor y;
      {
        PolicyScope scope(i % 2 ? "recompute_all" : "must_save_all");
        y = RegionInsideBackward::apply(own_x, own_w, 2, true);
      }
      expect_same_bits(gradients_of({y}, {x, w}), expected, "gradient");
    }
  });
}

// LibTorch's pool gives its tasks the thread's dispatch keys, as TorchScript's fork() does, but not the region.
TEST_F(ThreadsTest, TasksThatARegionSendsToThePoolAreNotRecorded) {
  const TensorFn fn = [](const Tensors& in) {
    const at::Tensor y = in[0].mm(in[1]).cos();
    std::promise<at::Tensor> promise;
    at::launch([&] {
      EXPECT_FALSE(is_checkpoint_enabled());
      const at::Tensor z = y.sin().exp();
      promise.set_value(z * z.sigmoid());
    });
    return Tensors{promise.get_future().get() * y.tanh()};
  };
  // mm and tanh: what the task's ops save stays alive, and y with it.
  expect_same_gradients_and_replays(fn, {sample({3, 6}), sample({6, 6})}, 2);
}

TEST_F(ThreadsTest, StatsMayBeReadFromAnywhereAtAnyTime) {
  at::Tensor x = sample({3, 6}), w = sample({6, 6});
  std::shared_ptr<const Trace> trace;
  at::Tensor y;
  std::atomic<bool> done = false;
  std::thread reader;
  {
    PolicyScope scope("recompute_all");
    trace = scope.trace();
    reader = std::thread([&] {
      do {
        TraceStats stats = trace->stats();
        EXPECT_GE(stats.recorded_ops, 0);
        EXPECT_GE(stats.saved_bytes, 0);
        EXPECT_FALSE(to_dot(*trace).empty());
        EXPECT_FALSE(to_chrome_trace(*trace).empty());
        EXPECT_GE(live_node_count(), 0);
      } while (!done);
    });
    for (int i = 0; i < 50; ++i) {
      y = network(x, w);
      gradients_of({y}, {x, w}, i % 2 == 0);
    }
  }
  y.reset();
  done = true;
  reader.join();
}

}  // namespace
}  // namespace ac2::test
