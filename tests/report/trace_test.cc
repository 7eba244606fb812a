// The handle on what a region recorded.
#include <cstdlib>
#include <memory>
#include <string>

#include "ac2/report.h"
#include "tests/support/regions.h"

namespace ac2::test {
namespace {

using TraceTest = CleanTest;

TEST_F(TraceTest, OutlivesScopeAndGraph) {
  std::shared_ptr<const Trace> trace;
  {
    at::Tensor x = sample({4});
    at::Tensor y;
    {
      PolicyScope scope("recompute_all");
      trace = scope.trace();
      ASSERT_NE(trace, nullptr);
      y = x.sin().cos();
    }
    EXPECT_GT(trace->stats().saved_bytes, 0);
    gradient_of(y, x);
  }
  TraceStats stats = trace->stats();
  EXPECT_EQ(stats.recorded_ops, 2);
  EXPECT_EQ(stats.recomputed_ops, 1);
  EXPECT_EQ(stats.live_nodes, 0);
  EXPECT_EQ(stats.saved_bytes, 0);
  EXPECT_EQ(stats.recomputed_bytes, 0);
  EXPECT_EQ(stats.evicted_values, 0);
  EXPECT_EQ(stats.offloaded_bytes, 0);
}

TEST_F(TraceTest, ThePeakIsTheMostThatWasHeldAndReplayedAtOnce) {
  constexpr int64_t kBytes = 256 * 4;
  const at::Tensor x = sample({256});
  const auto peaks = [&x](const char* policy) {
    std::vector<int64_t> peaks;
    at::Tensor y;
    std::shared_ptr<const Trace> trace;
    {
      const PolicyScope scope(policy);
      trace = scope.trace();
      y = x.sin().cos().sum();
    }
    peaks.push_back(trace->stats().peak_bytes / kBytes);
    gradient_of(y, x);
    peaks.push_back(trace->stats().peak_bytes / kBytes);
    EXPECT_EQ(trace->stats().saved_bytes, 0);
    return peaks;
  };
  // x and its sine: saved both, or one saved and the other replayed.
  EXPECT_EQ(peaks("must_save_all"), (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(peaks("recompute_all"), (std::vector<int64_t>{1, 2}));
}

TEST_F(TraceTest, KeepsNoTensorAlive) {
  std::shared_ptr<const Trace> trace;
  c10::weak_intrusive_ptr<c10::StorageImpl> input(c10::intrusive_ptr<c10::StorageImpl>{});
  {
    at::Tensor x = sample({4});
    input = x.storage().getWeakStorageImpl();
    at::Tensor y;
    {
      PolicyScope scope("recompute_all");
      trace = scope.trace();
      y = x.sin().cos();
    }
    x.reset();
    EXPECT_FALSE(input.expired());  // the graph holds it
  }
  EXPECT_TRUE(input.expired());
  EXPECT_EQ(trace->stats().recorded_ops, 2);
}

TEST_F(TraceTest, CountsReachableNodes) {
  at::Tensor x = sample({4});
  at::Tensor a, b;
  std::shared_ptr<const Trace> trace;
  {
    PolicyScope scope("recompute_all");
    trace = scope.trace();
    a = x.sin().cos().tan();  // needs sin's and cos's results, and tan's for itself
    b = x.cos().sin();        // needs cos's result
  }
  EXPECT_EQ(trace->stats().live_nodes, 3 + 1);
  b.reset();
  EXPECT_EQ(trace->stats().live_nodes, 3);
  a.reset();
  EXPECT_EQ(trace->stats().live_nodes, 0);
}

TEST_F(TraceTest, ExportsTheTraceThatIsStillReachable) {
  at::Tensor x = sample({4});
  std::shared_ptr<const Trace> trace;
  {
    at::Tensor y;
    {
      PolicyScope scope(saving({"aten::sin"}));
      trace = scope.trace();
      y = x.sin().exp().cos();
    }
    EXPECT_NE(to_dot(*trace).find("aten::exp"), std::string::npos);
    EXPECT_EQ(to_dot(*trace).find("digraph"), 0u);
    EXPECT_NE(to_chrome_trace(*trace).find("aten::exp"), std::string::npos);
  }
  EXPECT_EQ(to_dot(*trace).find("aten::exp"), std::string::npos);
  EXPECT_EQ(to_chrome_trace(*trace).find("aten::exp"), std::string::npos);
}

TEST_F(TraceTest, ExportsAnEmptyTrace) {
  PolicyScope scope("recompute_all");
  EXPECT_NE(to_dot(*scope.trace()).find("digraph"), std::string::npos);
  EXPECT_FALSE(to_chrome_trace(*scope.trace()).empty());
}

TEST_F(TraceTest, MayOutliveMain) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        // Destroyed after main, by when other static objects are gone.
        static at::Tensor y;
        static std::shared_ptr<const Trace> trace;
        at::Tensor x = sample({4});
        {
          PolicyScope scope("recompute_all");
          trace = scope.trace();
          y = x.sin().cos();
        }
        std::exit(live_node_count() == 1 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace ac2::test
