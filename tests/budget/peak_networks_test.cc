// A bound on the peak of whole networks: it is met, and what there is within it is used.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <string>

#include "ac2/internal/allocator/counted_memory.h"
#include "tests/budget/counted_peaks.h"
#include "tests/support/peak_networks.h"

namespace ac2::test {
namespace {

// With one thread. On aarch64 oneDNN takes working memory for each thread from LibTorch's allocator, and the peak of
// the plain step, of which the bound is a share, contains this memory.
class PeakNetworksTest : public CountedPeaksTest, public ::testing::WithParamInterface<NetworkAndShare> {
 protected:
  PeakNetworksTest() { at::set_num_threads(1); }
  ~PeakNetworksTest() override { at::set_num_threads(threads_); }

 private:
  const int threads_ = at::get_num_threads();
};

TEST_P(PeakNetworksTest, APeakIsWithinTwoPercentBelowTheBound) {
  expect_peak_near_bound(GetParam(), at::kCPU,
                         {.allocated = [] { return internal::CountedMemory::get().bytes(); },
                          .peak_of = [&](const auto& fn) { return peak_of(fn); }});
}

INSTANTIATE_TEST_SUITE_P(Networks, PeakNetworksTest, ::testing::ValuesIn(kPeakNetworks),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ac2::test
