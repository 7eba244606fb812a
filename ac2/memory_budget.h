// A number of bytes that several regions share.
//
//   ac2::MemoryBudget budget(64 << 20);
//   for (auto& block : blocks) {
//     ac2::PolicyScope scope({.shared_budget = budget});   // nothing is recomputed while all blocks fit
//     x = block->forward(x);
//   }
//   loss.backward();                                       // within the same 64 MiB
//
// What counts as held: the bytes that regions keep for backward of results of their ops, each storage once, views not
// at all; copies; what SaveWithHooks packed; replayed results in backward; and what a region took from outside and only
// regions keep alive, as the result of one layer that the next one's backward wants. What does not: parameters,
// tensors that the program itself holds on to, and what is offloaded (ac2/offload.h).
//
// Guaranteed: after every op, in forward and in backward, at most that many bytes are held. Gradients are those without
// a budget, to the last bit. What is dropped first are results that policies prefer to recompute, then PREFER_SAVE
// ones; never what a MUST_SAVE or SaveWithHooks decision keeps. Not guaranteed: what kernels use besides; and, for an
// op in backward, the tensors that autograd has just taken out.
//
// If memory runs out in an op of a region, or in a replay, all that can be dropped is, the op is tried once more, and
// the budget is three quarters of what was held from then on: a budget of more than there is adapts itself. Not for ops
// that write to their arguments or draw random numbers in forward.
//
// Threads: copies are the same budget; all of them may be used from any thread.
#pragma once

#include <cstdint>
#include <memory>

namespace ac2 {

namespace internal {
class Budget;
}

class MemoryBudget {
 public:
  // Throws c10::Error unless `bytes` is positive. Ops are timed as they run, to drop what is quickly computed again;
  // with `modelled_costs` their costs come from their shapes, so that the same program drops the same values.
  explicit MemoryBudget(int64_t bytes, bool modelled_costs = false);

  int64_t bytes() const;
  // Held now.
  int64_t held_bytes() const;

 private:
  friend class PolicyScope;
  std::shared_ptr<internal::Budget> budget_;
};

}  // namespace ac2
