// Minimum cuts of small graphs, by hand.
#include "ac2/internal/planning/min_cut.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace ac2::internal {
namespace {

// Two ways from 0 to 5, of which one narrows in the middle and the other at its end.
TEST(MinCutTest, CutsEachWayWhereItIsCheapest) {
  MinCut cut(6);
  cut.add_edge(0, 1, 5);
  cut.add_edge(1, 2, 1);
  cut.add_edge(2, 5, 5);
  cut.add_edge(0, 3, MinCut::kInfinite);
  cut.add_edge(3, 4, 4);
  cut.add_edge(4, 5, 2);
  cut.solve(0, 5);
  const std::vector<bool> expected{true, true, false, true, true, false};
  for (uint32_t node = 0; node < 6; ++node) {
    EXPECT_EQ(cut.on_source_side(node), expected[node]) << node;
  }
}

TEST(MinCutTest, OfEqualCutsTheOneNearestToTheSourceIsMeant) {
  MinCut cut(4);
  for (uint32_t node = 0; node < 3; ++node) {
    cut.add_edge(node, node + 1, 2);
  }
  cut.solve(0, 3);
  EXPECT_TRUE(cut.on_source_side(0));
  for (uint32_t node = 1; node < 4; ++node) {
    EXPECT_FALSE(cut.on_source_side(node)) << node;
  }
}

}  // namespace
}  // namespace ac2::internal
