// How many op nodes exist in the process: what live_node_count() reads.
//
// Relaxed everywhere. Who looks whether there are any (ac2::expose) is concerned by those alone that were recorded
// before, in the order that the program makes between its threads; and what happened before is seen in any order.
#pragma once

#include <atomic>
#include <cstdint>

namespace ac2::internal {

inline std::atomic<int64_t>& live_nodes() {
  static std::atomic<int64_t> count{0};
  return count;
}

}  // namespace ac2::internal
