// Something fails at every point where it can: an allocation, a policy, a pack or unpack function, an op of the user's.
// Each time the error must reach the user, the thread be clean, nothing be left, and the same step, run again, be
// right.
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/library.h>

#include <atomic>
#include <functional>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>

#include "tests/support/failing_allocator.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

// Counts calls, and throws at the one it was told.
class Fault {
 public:
  void fail_after(int64_t count) { left_ = count; }
  void never_fail() { left_ = -1; }
  bool has_failed() const { return left_ == kFailed; }
  void point() {
    if (left_ == 0) {
      left_ = kFailed;
      throw std::runtime_error("a fault, as told");
    }
    if (left_ > 0) --left_;
  }

 private:
  static constexpr int64_t kFailed = -2;
  int64_t left_ = -1;
};

Fault& op_fault() {
  static Fault fault;
  return fault;
}

at::Tensor fragile(const at::Tensor& x) {
  op_fault().point();
  at::Tensor y = x.sin();
  op_fault().point();
  return y;
}

at::Tensor& fragile_(at::Tensor& x) {
  op_fault().point();
  x.mul_(2);
  op_fault().point();
  return x;
}

TORCH_LIBRARY(ac2_faults_test, m) {
  m.def("fragile(Tensor x) -> Tensor");
  m.def("fragile_(Tensor(a!) x) -> Tensor(a!)");
}

TORCH_LIBRARY_IMPL(ac2_faults_test, CPU, m) {
  m.impl("fragile", fragile);
  m.impl("fragile_", fragile_);
}

struct Step {
  Tensors parameters;
  std::function<at::Tensor(const Tensors&)> forward;
};

// Attention with dropout, LayerNorm, GELU, residual connections, a batch norm with statistics, in-place writes.
Step transformer_block() {
  constexpr int64_t kWidth = 8, kHeads = 2, kBatch = 2, kTime = 4;
  Step step;
  step.parameters = {sample({kBatch, kTime, kWidth}), sample({kWidth}),         sample({kWidth}),
                     sample({3 * kWidth, kWidth}),    sample({kWidth, kWidth}), sample({kWidth * 2, kWidth}),
                     sample({kWidth, kWidth * 2})};
  step.forward = [](const Tensors& p) {
    const at::Tensor& x = p[0];
    at::Tensor statistics = at::zeros({kTime});
    at::Tensor h = at::layer_norm(x, {kWidth}, p[1], p[2]);
    std::vector<at::Tensor> qkv = at::linear(h, p[3]).chunk(3, -1);
    for (at::Tensor& t : qkv) t = t.view({kBatch, kTime, kHeads, kWidth / kHeads}).transpose(1, 2);
    at::Tensor attention = at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {}, 0.0, /*is_causal=*/true);
    h = at::linear(attention.transpose(1, 2).reshape({kBatch, kTime, kWidth}), p[4]);
    h = at::dropout(h, 0.25, true).add_(x);
    at::Tensor n = at::batch_norm(h, {}, {}, statistics, at::ones({kTime}), true, 0.1, 1e-5, false);
    at::Tensor y = at::gelu(at::linear(n, p[5]));
    y.select(0, 0).mul_(0.5);
    return h + at::linear(y.relu_(), p[6]);
  };
  return step;
}

Tensors run(const Step& step, const Policy* policy) {
  at::manual_seed(5);
  at::Tensor y;
  if (policy != nullptr) {
    PolicyScope scope(*policy);
    y = step.forward(step.parameters);
  } else {
    y = step.forward(step.parameters);
  }
  return gradients_of({y}, step.parameters);
}

class FaultsTest : public CleanTest {
 protected:
  void SetUp() override {
    CleanTest::SetUp();
    threads_ = at::get_num_threads();
    at::set_num_threads(1);
  }
  void TearDown() override {
    at::set_num_threads(threads_);
    CleanTest::TearDown();
  }

  // Runs `step` with a failure after 0, 1, 2 … of whatever `fault` counts, until one run meets none. Returns how many
  // runs failed.
  template <class AnyFault>
  int64_t fail_everywhere(AnyFault& fault, const Step& step, const Policy& policy, const char* words) {
    const Tensors expected = run(step, nullptr);
    for (int64_t n = 0;; ++n) {
      std::string message;
      fault.fail_after(n);
      try {
        run(step, &policy);
      } catch (const std::exception& error) {
        message = error.what();
      }
      const bool has_failed = fault.has_failed();
      fault.never_fail();
      EXPECT_EQ(message.find(words) != std::string::npos, has_failed) << n << ": " << message;
      expect_nothing_left();
      expect_same_bits(run(step, &policy), expected, "gradient, run again,");
      if (!has_failed || HasFailure()) return n;
    }
  }

 private:
  int threads_ = 1;
};

const SaveWithHooks& clones() {
  static const SaveWithHooks hooks{[](const at::Tensor& t) { return c10::IValue(t.clone()); },
                                   [](const c10::IValue& v) { return v.toTensor().clone(); }};
  return hooks;
}

TEST_F(FaultsTest, AnyAllocationMayFailUnderAnyPolicy) {
  FailingAllocator& allocator = FailingAllocator::install();
  const Step step = transformer_block();
  for (const Policy& policy : {Policy("recompute_all"), Policy("must_save_all"),
                               saving({"aten::addmm", "aten::mm", "aten::native_layer_norm"}),
                               Policy::constant(clones()), Policy([](const OpContext& op) -> PolicyDecision {
                                 if (op.index() % 3 == 0) return clones();
                                 return op.index() % 3 == 1;
                               })}) {
    const int64_t failures = fail_everywhere(allocator, step, policy, "out of memory, as told");
    EXPECT_GE(failures, 60);
    if (HasFailure()) return;
  }
}

TEST_F(FaultsTest, TheCopyOfWhatIsOverwrittenMayFail) {
  FailingAllocator& allocator = FailingAllocator::install();
  const at::Tensor x = sample({4}), c = constant({4});
  at::Tensor y;
  {
    const PolicyScope scope("must_save_all");
    at::Tensor a = c.sin();
    y = x * a;
    allocator.fail_after(0);
    EXPECT_THROW(a.neg_(), std::exception);
    EXPECT_TRUE(allocator.has_failed());
    allocator.never_fail();
  }
  EXPECT_TRUE(same_bits(gradient_of(y, x), gradient_of(x * c.sin(), x)));
  y.reset();
  expect_nothing_left();
}

TEST_F(FaultsTest, AnyAllocationMayFailWhileVerifying) {
  FailingAllocator& allocator = FailingAllocator::install();
  Step step = transformer_block();
  const auto forward = step.forward;
  step.forward = [forward](const Tensors& p) {
    std::optional<PolicyScope> inner;
    if (is_checkpoint_enabled()) inner.emplace("recompute_all", ScopeOptions{.verify = true});
    return forward(p);
  };
  EXPECT_GE(fail_everywhere(allocator, step, "recompute_all", "out of memory, as told"), 60);
}

TEST_F(FaultsTest, APolicyMayThrowAtAnyOp) {
  Fault fault;
  const Policy policy = [&fault](const OpContext& op) -> PolicyDecision {
    fault.point();
    return op.index() % 4 == 0;
  };
  EXPECT_EQ(fail_everywhere(fault, transformer_block(), policy, "a fault, as told"), 19);  // ops that are no views
}

TEST_F(FaultsTest, AnyPackMayThrowBeforeAndAfterItsWork) {
  Fault fault;
  const Policy policy = Policy::constant(SaveWithHooks{[&fault](const at::Tensor& t) {
                                                         fault.point();
                                                         at::Tensor copy = t.clone();
                                                         fault.point();
                                                         return c10::IValue(copy);
                                                       },
                                                       clones().unpack});
  EXPECT_GE(fail_everywhere(fault, transformer_block(), policy, "a fault, as told"), 10);
}

TEST_F(FaultsTest, AnyUnpackMayThrowBeforeAndAfterItsWork) {
  Fault fault;
  const PolicyDecision hooks = SaveWithHooks{clones().pack, [&fault](const c10::IValue& v) {
                                               fault.point();
                                               at::Tensor copy = v.toTensor().clone();
                                               fault.point();
                                               return copy;
                                             }};
  const Policy policy = [&hooks](const OpContext& op) -> PolicyDecision {
    return op.index() % 2 == 0 ? CheckpointPolicy::PREFER_RECOMPUTE : hooks;
  };
  EXPECT_GE(fail_everywhere(fault, transformer_block(), policy, "a fault, as told"), 10);
}

TEST_F(FaultsTest, AnOpOfTheUsersMayThrowAtAnyCallInForwardAndInReplay) {
  const auto call = [](const char* name, at::Tensor x) {
    torch::jit::Stack stack{std::move(x)};
    c10::Dispatcher::singleton().findSchemaOrThrow(name, "").callBoxed(stack);
    return stack.back().toTensor();
  };
  Step step;
  step.parameters = {sample({4}), sample({4})};
  step.forward = [call](const Tensors& p) {
    at::Tensor y = p[0];
    for (int i = 0; i < 4; ++i) {
      at::Tensor a = call("ac2_faults_test::fragile", p[1].detach() + i);
      y = (y + a).cos();
      call("ac2_faults_test::fragile_", a.detach());
      y = y * a.sin();
    }
    return y + p[1];
  };
  EXPECT_GE(fail_everywhere(op_fault(), step, "recompute_all", "a fault, as told"), 4 * 4 + 4 * 3);
  EXPECT_EQ(fail_everywhere(op_fault(), step, "must_save_all", "a fault, as told"), 4 * 4);
}

// Backward on another thread is stopped half way; meanwhile its graph loses all its owners here.
TEST_F(FaultsTest, AGraphIsCancelledHalfWayThroughBackwardOnAnotherThread) {
  for (const bool dropped_first : {false, true}) {
    at::Tensor x = sample({4, 4});
    std::promise<void> half_way, dropped;
    std::shared_ptr<const Trace> trace;
    at::Tensor y;
    {
      PolicyScope scope("recompute_all");
      trace = scope.trace();
      at::Tensor middle = x.sin().cos().sin();
      middle.register_hook([&](const at::Tensor&) -> at::Tensor {
        half_way.set_value();
        dropped.get_future().wait();
        throw std::runtime_error("cancelled");
      });
      y = middle.cos().sin().cos();
    }
    std::string message;
    std::thread backward([&message, y, x] {
      try {
        gradient_of(y, x);
      } catch (const std::exception& error) {
        message = error.what();
      }
    });
    half_way.get_future().wait();
    if (dropped_first) y.reset();
    dropped.set_value();
    backward.join();
    y.reset();
    EXPECT_NE(message.find("cancelled"), std::string::npos) << message;
    EXPECT_EQ(trace->stats().recomputed_bytes, 0);
    EXPECT_EQ(trace->stats().saved_bytes, 0);
    expect_nothing_left();
  }
}

}  // namespace
}  // namespace ac2::test
