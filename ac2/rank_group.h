// The ranks of a job that agree on what their memory budgets drop.
//
//   class Gloo : public ac2::RankGroup {
//     void take_largest(at::Tensor& numbers) override {
//       std::vector<at::Tensor> one = {numbers};
//       process_group_->allreduce(one, {.reduceOp = c10d::ReduceOp::MAX})->wait();
//     }
//     …
//   };
//   const auto group = std::make_shared<Gloo>(…);
//   ac2::PolicyScope scope({.memory_budget = ac2::whatever_fits(group)});
//
// Without it each rank decides for itself what it drops. Where replays communicate (collectives that a policy replays,
// parameters that are gathered for a replay), ranks that have dropped different values wait for each other for ever.
//
// With it the ranks agree once a backward, before the first replay:
//
//   - on the smallest limit that one of them has learned from a shortage of memory, which all have from then on;
//   - on each result whose replay communicates. If one rank has dropped it, all drop it; if none has, all hold it until
//     backward has used it. What a rank can compute again without the others stays its own choice.
//
// Guaranteed: replays communicate in the same order on all ranks, whatever memory each of them has and however long its
// sequences are. Gradients are bitwise those without a budget.
//
// Not guaranteed: that all replays are the same, because those that do not communicate may differ. After the agreement
// a rank can drop nothing that the ranks have agreed to hold, so that it may run out of memory in backward; the next
// step begins with what it has learned if the error is caught.
//
// The ranks run the same program: the same ops in the same order in regions of the budget, and the same backwards. The
// sizes of tensors may differ. If the numbers of ops differ, each result whose replay communicates is dropped, and a
// warning says so once.
#pragma once

#include <ATen/core/Tensor.h>

namespace ac2 {

class RankGroup {
 public:
  RankGroup() = default;
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;
  virtual ~RankGroup() = default;

  // Replaces each number by the largest that a rank of the group has in its place. `numbers` is a contiguous tensor of
  // one dimension on the CPU, of int64 or of uint8, and of the same size on all ranks. Returns when the numbers are
  // there. Throws if they cannot come, as where a rank is lost; the exception ends the backward.
  //
  // Called in backward, by the thread that unpacks the first tensor of a region, with no lock held and no region open:
  // once a backward, and once more if the ranks have not dropped the same.
  virtual void take_largest(at::Tensor& numbers) = 0;
};

}  // namespace ac2
