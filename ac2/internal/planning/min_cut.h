// The cheapest cut between a source and a sink, by Dinic's algorithm (E. A. Dinic, 1970).
//
//   MinCut cut(4);             // nodes 0 to 3
//   cut.add_edge(0, 1, 2.5);   // kInfinite: this edge must not be cut
//   cut.solve(0, 3);
//   if (cut.on_source_side(1)) …
//
// Threads: not thread-safe.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace ac2::internal {

class MinCut {
 public:
  static constexpr double kInfinite = std::numeric_limits<double>::infinity();

  explicit MinCut(uint32_t nodes) : edges_of_(nodes) {}

  void add_edge(uint32_t from, uint32_t to, double capacity);
  void solve(uint32_t source, uint32_t sink);
  // To be called after solve(). If several cuts are the cheapest, this is about the one nearest to the source.
  bool on_source_side(uint32_t node) const { return level_[node] >= 0; }

 private:
  struct Edge {
    uint32_t to;
    double left;  // of its capacity
  };
  bool find_levels(uint32_t source, uint32_t sink);
  // Sends flow along one path from source to sink, or returns false if none is left.
  bool augment(uint32_t source, uint32_t sink);

  std::vector<Edge> edges_;  // edge i has its reverse at i ^ 1
  std::vector<std::vector<uint32_t>> edges_of_;
  std::vector<int32_t> level_;
  std::vector<uint32_t> next_;
};

}  // namespace ac2::internal
