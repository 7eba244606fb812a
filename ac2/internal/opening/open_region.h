// The one way in which regions are opened, by PolicyScope and by StepPlanner. Everything that a process needs is
// installed first.
//
// Threads: the region is the calling thread's.
#pragma once

#include <memory>
#include <optional>

#include "ac2/internal/libtorch/managed_tensors.h"
#include "ac2/internal/observe/step_log.h"
#include "ac2/internal/region/region.h"
#include "ac2/offload_options.h"
#include "ac2/policy.h"

namespace ac2::internal {

// The wishes of a scope.
struct OpeningOptions {
  bool verify = false;
  bool timeline = false;
  std::shared_ptr<Budget> budget = nullptr;
  std::shared_ptr<StepLog> log = nullptr;
  std::optional<OffloadOptions> offload = std::nullopt;
  GatherUnits gather_units = nullptr;
  bool keep_for_next_backward = false;
  Forms forms = {};
};

// Throws c10::Error if AC2_VERIFY is neither 1 nor 0, and passes on what `policy` throws when a region enters it. With
// AC2_VERIFY=1 the region verifies its replays, whatever `options` say.
std::shared_ptr<ScopeState> open_region(Policy policy, OpeningOptions options);

}  // namespace ac2::internal
