// Names of programs that were written before 0.1. They go with 0.2 (docs/stability.md). ac2/ac2.h includes them until
// then.
//
//   | old                      | now                                 |
//   |--------------------------|-------------------------------------|
//   | ac2::nn::Checkpointed, … | ac2::Checkpointed, …                |
//   | save_plan(plan, path)    | plan.save(path)                     |
//   | load_plan(path)          | Plan::load(path)                    |
#pragma once

#include <string>

#include "ac2/form.h"
#include "ac2/nn/nn.h"
#include "ac2/plan.h"
#include "ac2/policy.h"

namespace ac2 {

namespace nn {
using ac2::apply_checkpointing;
using ac2::checkpoint_sequential;
using ac2::checkpoint_wrapper;
using ac2::Checkpointed;
using ac2::CheckpointedModule;
using ac2::Checkpointing;
using ac2::CheckpointOptions;
using ac2::CheckpointSpec;
using ac2::find_checkpointing;
using ac2::ModuleSelector;
using ac2::remove_checkpointing;
using ac2::sqrt_segments;
}  // namespace nn

// Plan::save() of the plan that `plan` is. Throws c10::Error too if it is no plan.
void save_plan(const Policy& plan, const std::string& path);
// Plan::load().
Plan load_plan(const std::string& path, const Forms& own = {});

}  // namespace ac2
