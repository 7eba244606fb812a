// A number of bytes that regions may hold for backward.
//
//   ac2::MemoryBudget budget(64 << 20);
//   for (auto& block : blocks) {
//     ac2::PolicyScope scope({.memory_budget = budget});     // nothing is recomputed while all blocks fit
//     x = block->forward(x);
//   }
//   loss.backward();                                         // within the same 64 MiB
//
// These bytes count as held:
//   - what regions hold for backward of the results of their ops, each storage once, views not at all;
//   - copies, and what SaveWithHooks packed;
//   - in backward, replayed results;
//   - what a region took from outside and only regions keep alive, such as the result of one layer that the backward of
//     the next one needs.
// These do not count: parameters, tensors that the program itself holds, and what is offloaded (ac2/offload.h).
//
// Guaranteed: after every op, in forward and in backward, at most that many bytes are held. Gradients are bitwise
// identical to those without a budget. Results that policies prefer to recompute are dropped first, then those that
// policies prefer to save, and last of all those for which there would be no room if they were computed again. A value
// that a MUST_SAVE or SaveWithHooks decision saves is never dropped. If a replay does not fit, its inputs are gathered
// once more, in the order that takes the fewest bytes, with all else dropped. Only if that does not fit either is it an
// error, a c10::Error, which says with which budget it would have.
//
// Not guaranteed: the memory that kernels use besides, and, for an op in backward, the tensors that autograd has just
// taken out. Where regions hold more than 64 tensors from outside, a tensor that the program drops may count some ops
// later.
//
// If memory runs out in an op of a region or in a replay, the budget drops all that it can, and the op is tried once
// more. From then on the budget is three quarters of what was held, so that a budget larger than the machine's memory
// adapts itself. It stays as it is if that was less than 7/8 of the most that regions have held lately. This does not
// apply to ops that write to their arguments, nor to ops that draw random numbers in forward.
//
// A budget need not have a number:
//
//   ac2::PolicyScope scope;                            // whatever_fits(): nothing is dropped while there is memory
//   loss = model->forward(x);
//
// See whatever_fits() below.
//
// Threads: copies are the same budget; all of them may be used from any thread.
#pragma once

#include <cstdint>
#include <memory>

#include "ac2/bytes.h"       // IWYU pragma: export
#include "ac2/rank_group.h"  // IWYU pragma: export

namespace ac2 {

namespace internal {
class Budget;
class BudgetAccess;
}  // namespace internal

class MemoryBudget;

// A budget without a number, for regions that may hold what the machine has room for.
//
// Nothing is dropped while there is memory. Where memory runs out, in an op of a region, a replay, a kernel of
// backward, an optimizer or an op outside of regions, on any thread, the regions under this budget drop what is
// cheapest to compute again and frees memory on that device, until the allocation succeeds; then the program goes on.
// The error arrives when nothing is left to drop, and says what is held. Gradients are bitwise those without a budget.
//
// The budget learns from each shortage. From then on its limit is as much as could be held beside all else that there
// was. The limit is met before memory runs out, and is exceeded where that is not possible. Some backwards after the
// last shortage the limit rises by an eighth, more and more seldom where that was too much.
//
// All calls give the same budget (one for each value of `modelled_costs`), because regions share what there is, and a
// region of the next step goes on with what the last has learned. bytes() is what it has learned, and the largest
// int64_t while that is nothing. A scope inside one with a number is bounded by that number, and the regions of the
// number's budget drop nothing for others.
//
// On the CPU memory runs out where an allocation fails, or where the machine's limits leave too little for one (the
// cgroup's memory.max, RLIMIT_AS, MemAvailable, each less a reserve of a 64th, at least 16 MiB, at most 1 GiB): Linux
// would end the process later. For this the first call puts an allocator in front of LibTorch's, for the rest of the
// process (ac2/internal/allocator/retrying_allocator.h). Other threads may allocate meanwhile. An allocator that the
// program has put there stays behind it and is asked for every block. With the first shortage, glibc's malloc is told
// to map blocks of 128 KiB and more by themselves.
//
// On CUDA the caching allocator asks before it takes memory of the device, without saying how much. A fraction of the
// device that was set with setMemoryFraction() is seen in a build with --config=cuda, and from Python. Dropped
// memory may lie in pieces of segments in which other tensors lie too, and then not be enough; docs/gpu.md has more on
// that. In front of the allocator of a device that PyTorch does not have itself (PrivateUse1), if it is a
// c10::DeviceAllocator, the first call puts an allocator too. Other accelerators have nothing of the kind: there ops of
// regions and replays are tried again, and kernels of backward and ops outside of regions are not.
MemoryBudget whatever_fits(bool modelled_costs = false);
// The same for the ranks of a job, which agree on what they drop (ac2/rank_group.h). All calls with the same group give
// the same budget, which keeps the group to the end of the process. Costs come from shapes. Throws c10::Error if the
// group is null, as the functions below do.
MemoryBudget whatever_fits(std::shared_ptr<RankGroup> group);

class MemoryBudget {
 public:
  // Throws c10::Error unless `bytes` is positive. Ops are timed as they run, so that what is quickly computed again is
  // dropped first. With `modelled_costs` the costs of ops come from their shapes instead, so that the same program
  // drops the same values in every run.
  explicit MemoryBudget(Bytes bytes, bool modelled_costs = false);
  // The ranks of a job agree on what they drop (ac2/rank_group.h). Costs come from shapes.
  MemoryBudget(Bytes bytes, std::shared_ptr<RankGroup> group);
  // The same, but no error where that many bytes are not enough: then more is held, a warning says so once, and it is
  // counted. Among the budgets of nested scopes the smallest strict one is still an error.
  static MemoryBudget soft(Bytes bytes, bool modelled_costs = false);
  static MemoryBudget soft(Bytes bytes, std::shared_ptr<RankGroup> group);
  // A bound on the peak of the process, not on what regions hold: as whatever_fits(), where memory has run out as soon
  // as the tensors of a device take more than `bytes` together, whoever holds them. Held values, what the program holds
  // itself, gradients, the optimizer's state and what kernels allocate then stay within `bytes`, where dropping values
  // of regions under this budget, or another such, is enough; where it is not, more is allocated, a warning says so
  // once, and it is counted. The CPU, and each device on which such regions compute, has these bytes for itself:
  //
  // - CPU: all tensors that were allocated since the first call.
  // - CUDA: all memory that LibTorch's allocator has reserved, used or not. The allocator is told to take no more
  //   (setMemoryFraction) from the first op of such a region on, until the last such budget is gone. Where nothing is
  //   left to drop, its error arrives, and nothing is counted. Needs LibTorch 2.9, and a build with --config=cuda or
  //   Python.
  // - A device that PyTorch does not have itself (PrivateUse1), with a c10::DeviceAllocator: all that the allocator's
  //   statistics call allocated, with each new block rounded up to 512 bytes.
  // - Other devices are not bounded, which a warning says once where a region computes on one; a shortage there is met
  //   as under whatever_fits().
  //
  // Memory of the CPU that was allocated before the first call is not counted, so call peak() before the model is made.
  // From then on every block of the CPU's allocator is noted in a table, for the rest of the process. Each call makes a
  // budget of its own; the smallest that lives rules.
  //
  // Throws c10::Error unless `bytes` is positive.
  static MemoryBudget peak(Bytes bytes, bool modelled_costs = false);
  static MemoryBudget peak(Bytes bytes, std::shared_ptr<RankGroup> group);

  // A moved budget is a copied one, so that no variable is left without a budget.
  MemoryBudget(const MemoryBudget&) = default;
  MemoryBudget& operator=(const MemoryBudget&) = default;

  // Of a budget for a peak that, of whatever_fits() what it has learned.
  int64_t bytes() const;
  // The bytes that are held now.
  int64_t held_bytes() const;
  // For how many ops and saved tensors a soft budget had no room so far, and by how many bytes it was exceeded at most.
  // Of a budget for a peak, how many allocations went over it. The limit that whatever_fits() has learned does not
  // count.
  int64_t times_over() const;
  int64_t most_bytes_over() const;

 private:
  friend class BudgetOption;
  friend class internal::BudgetAccess;
  friend MemoryBudget whatever_fits(bool modelled_costs);
  friend MemoryBudget whatever_fits(std::shared_ptr<RankGroup> group);
  MemoryBudget(Bytes bytes, bool modelled_costs, std::shared_ptr<RankGroup> group, bool soft);
  explicit MemoryBudget(std::shared_ptr<internal::Budget> budget);
  std::shared_ptr<internal::Budget> budget_;
};

}  // namespace ac2
