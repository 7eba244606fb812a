// Saves the results of the listed ops in the host's memory, recomputes everything else.
//
//   const ac2::Policy policy = ac2::policies::offload_ops({"aten::mm", "aten::addmm"});
//   ...
//   ac2::PolicyScope scope(policy, {.offload = ac2::OffloadOptions{.read_ahead_bytes = 1 << 30}});
//
// Results leave an accelerator on a stream of their own and come back before backward needs them: ac2/offload.h says
// how, from how many bytes on, and where they stay instead. On the CPU they are saved where they are. torchtune's
// OffloadActivations offloads all that autograd saves: offload_ops({"aten::*"}).
// Ops: MUST_CPU_OFFLOAD for the listed ones, PREFER_RECOMPUTE for the others. Names as in policies/save_ops.h; throws
// c10::Error for one that no operator has. Regions ask it once per operator.
#pragma once

#include <string>
#include <vector>

#include "ac2/policy.h"

namespace ac2::policies {

Policy offload_ops(const std::vector<std::string>& ops);

}  // namespace ac2::policies
