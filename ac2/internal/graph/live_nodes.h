// How many op nodes exist in the process: what live_node_count() reads.
#pragma once

#include <atomic>
#include <cstdint>

namespace ac2::internal {

inline std::atomic<int64_t>& live_nodes() {
  static std::atomic<int64_t> count{0};
  return count;
}

}  // namespace ac2::internal
