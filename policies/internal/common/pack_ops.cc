#include "policies/internal/common/pack_ops.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "ac2/internal/locks/mutex.h"
#include "ac2/policy_instance.h"
#include "policies/internal/common/op_names.h"
#include "policies/internal/common/ready_made.h"
#include "policies/internal/common/wanted.h"

namespace ac2::policies::internal {

namespace {

// The open region of one thread.
class OpenRegion {
 public:
  explicit OpenRegion(MakeForm make) : make_(std::move(make)) {}

  PolicyDecision decide(const c10::OperatorHandle& op) {
    const std::string name = c10::toString(op.operator_name());
    const auto found = decisions_.find(name);
    return found != decisions_.end() ? found->second
                                     : decisions_.emplace(name, PolicyDecision(make_(name))).first->second;
  }

 private:
  MakeForm make_;
  absl::flat_hash_map<std::string, PolicyDecision> decisions_;
};

class OpenRegions {
 public:
  explicit OpenRegions(std::function<MakeForm()> enter_region) : enter_region_(std::move(enter_region)) {}

  // The region of a scope around this one; else a new region, which lasts as long as a scope has it.
  std::shared_ptr<OpenRegion> here() {
    const ac2::internal::MutexLock lock(mutex_);
    std::weak_ptr<OpenRegion>& open = open_[std::this_thread::get_id()];
    std::shared_ptr<OpenRegion> region = open.lock();
    if (region == nullptr) {
      absl::erase_if(open_, [&](const auto& entry) { return &entry.second != &open && entry.second.expired(); });
      region = std::make_shared<OpenRegion>(enter_region_());
      open_[std::this_thread::get_id()] = region;
    }
    return region;
  }

 private:
  const std::function<MakeForm()> enter_region_;
  ac2::internal::Mutex mutex_;
  absl::flat_hash_map<std::thread::id, std::weak_ptr<OpenRegion>> open_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

Policy pack_ops(const std::string& caller, const std::vector<std::string>& ops, bool is_inexact,
                std::function<MakeForm()> enter_region) {
  const auto listed = std::make_shared<const OpNameSet>(OpNameSet::parse(caller, ops));
  const auto regions = std::make_shared<OpenRegions>(std::move(enter_region));
  Policy packs = policy_per_region([listed, regions, is_inexact] {
    PolicyInstance instance;
    instance.by_operator = [listed, region = regions->here()](const c10::OperatorHandle& op) -> PolicyDecision {
      if (!listed->contains(op.operator_name())) return CheckpointPolicy::PREFER_RECOMPUTE;
      return region->decide(op);
    };
    instance.is_inexact = is_inexact;
    return instance;
  });
  return ready_made(caller, watch_ops(std::move(packs), caller, ops, Complain::kIfNoneCame));
}

}  // namespace ac2::policies::internal
