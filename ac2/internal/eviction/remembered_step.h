// A step that has ended: its ops in order, and which ops use which of their results.
//
//   RememberedStep step;
//   step.add_op(signature, cost);           // in the order of the program
//   step.add_result();                      // of the last op
//   step.add_use(result);                   // by the last op; results are numbered through the step
//   step.finish();                          // nothing is added from now on
//   step.next_use(result, place);           // the first op after `place` that uses it, or kNone
//   step.find(anchor, after);               // a later place at which the last ops have been those
//
// A step takes 32 bytes an op while it is added to, 4 more once it is finished, 4 a result and 4 a use (8 before
// finish()).
//
// Threads: not thread-safe until finish(); after that what is const may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace ac2::internal {

class RememberedStep {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  // Of so many ops the signatures make an anchor.
  static constexpr size_t kAnchor = 4;

  // --- while the step runs ---

  void add_op(uint64_t signature, double cost);
  void add_result() { ++results_; }
  void add_use(uint32_t result) { uses_of_.emplace_back(result, static_cast<uint32_t>(ops_.size() - 1)); }
  void finish();

  // --- at any time ---

  uint32_t ops() const { return static_cast<uint32_t>(ops_.size()); }
  uint32_t results() const { return results_; }
  uint64_t signature(uint32_t op) const { return ops_[op].signature; }
  // A hash of all signatures up to that op.
  uint64_t prefix(uint32_t op) const { return ops_[op].prefix; }
  uint32_t first_result(uint32_t op) const { return op < ops_.size() ? ops_[op].first_result : results_; }
  // The sum of the costs of the ops before it.
  double begin(uint32_t op) const { return op < ops_.size() ? ops_[op].begin : length_; }
  double cost(uint32_t op) const { return begin(op + 1) - begin(op); }
  double length() const { return length_; }
  // Of the op and those before it. There must be kAnchor of them.
  uint64_t anchor(uint32_t op) const;
  int64_t bytes() const;

  // --- once it is finished ---

  // `place` may be kNone: before the first op.
  uint32_t next_use(uint32_t result, uint32_t place) const;
  // The first place at or after `after` with that anchor, or kNone.
  uint32_t find(uint64_t anchor, uint32_t after) const;

 private:
  struct Op {
    uint64_t signature = 0;
    uint64_t prefix = 0;
    double begin = 0;
    uint32_t first_result = 0;
  };

  std::vector<Op> ops_;
  uint32_t results_ = 0;
  double length_ = 0;
  std::vector<std::pair<uint32_t, uint32_t>> uses_of_;  // result and op; empty once it is finished
  std::vector<uint32_t> uses_;                          // ops, result by result
  std::vector<uint32_t> first_uses_;                    // by result, and one more
  std::vector<uint32_t> anchored_;                      // ops, sorted by their anchor
};

}  // namespace ac2::internal
