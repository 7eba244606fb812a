// The number of op nodes that exist in the process, which live_node_count() reads.
//
// Relaxed everywhere. A caller that asks whether there are any (ac2::expose) is concerned only by nodes that were
// recorded before, in the order that the program makes between its threads. A relaxed load sees all that happened
// before.
#pragma once

#include <atomic>
#include <cstdint>

namespace ac2::internal {

inline std::atomic<int64_t>& live_nodes() {
  static std::atomic<int64_t> count{0};
  return count;
}

}  // namespace ac2::internal
