// The same training under every policy, side by side.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "examples/text_data.h"
#include "examples/trainer.h"

namespace gpt {

struct ComparedPolicy {
  std::string name;
  double median_seconds = 0;  // of a step
  double ratio = 0;           // median over the steps of this policy's time / that of "none" in the same step
  int64_t held_bytes = 0;     // the most of any step, as the peak
  int64_t peak_bytes = 0;
  float final_loss = 0;
  Reduced reduced = {};          // in all steps together
  bool same_losses = false;      // every step's loss has the bits that "none" has
  bool same_parameters = false;  // and so has every parameter at the end
  bool same_reduced = false;     // every step gave all-reduces what "none" gives them
};

// Trains options.steps steps under each of `names`, as checkpointing_by_name() takes them, "none" being the first. The
// policies take turns step by step, in an order that rotates, so that a machine which becomes slower or faster does so
// for all of them. The first steps, up to three, are not timed: they fill caches and allocate the optimizer's state.
// `after_step` is told how many rounds are done.
std::vector<ComparedPolicy> compare_policies(const TextData& text, const TrainOptions& options,
                                             const std::vector<std::string>& names,
                                             const std::function<void(int64_t)>& after_step);

// Prints the table and a verdict. True if every policy trained exactly as "none".
bool print_comparison(std::ostream& out, const std::vector<ComparedPolicy>& compared);

}  // namespace gpt
