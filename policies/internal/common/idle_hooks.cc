#include "policies/internal/common/idle_hooks.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ac2/internal/forms/functions_form.h"
#include "ac2/policy_instance.h"
#include "policies/internal/common/first_backward.h"

namespace ac2::policies::internal {

namespace {

using Packs = ac2::internal::FunctionsForm::Packs;

// Null for every other decision.
std::shared_ptr<Packs> packs_of(const PolicyDecision& decision) {
  const auto* form = decision.form() != nullptr ? ac2::internal::as_functions(*decision.form()) : nullptr;
  return form != nullptr ? form->packs() : nullptr;
}

class Hooks final : public FirstBackward {
 public:
  Hooks(std::string caller, HooksOf of) : caller_(std::move(caller)), of_(of) {}

  PolicyDecision decided(PolicyDecision decision, const c10::OperatorHandle& op) {
    if (decision.form() == nullptr || is_over()) {
      return decision;
    }
    std::shared_ptr<Packs> packs = packs_of(decision);
    if (packs == nullptr || packs->began.load(std::memory_order_relaxed)) {
      return decision;
    }
    const ac2::internal::MutexLock lock(mutex_);
    ops_[std::move(packs)].insert(c10::toString(op.operator_name()));
    return decision;
  }

 private:
  std::string complaint() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) override {
    const auto began = [](const auto& entry) { return entry.first->began.load(std::memory_order_relaxed); };
    if (of_ == HooksOf::kFunction && std::any_of(ops_.begin(), ops_.end(), began)) {
      return "";
    }
    std::vector<std::string> ops;
    for (const auto& [packs, names] : ops_) {
      if (!packs->began.load(std::memory_order_relaxed) && !packs->told.exchange(true, std::memory_order_relaxed)) {
        ops.insert(ops.end(), names.begin(), names.end());
      }
    }
    if (ops.empty()) {
      return "";
    }
    return absl::StrCat(
        caller_,
        " decided for a SaveWithHooks whose pack was not called until the end of the first backward. It decided "
        "so for results of ",
        list_of(ops),
        ", of which nothing was needed for backward, or another decision held: that of a tag, of a name, or of a "
        "policy "
        "that insists.");
  }

  const std::string caller_;
  const HooksOf of_;
  std::map<std::shared_ptr<Packs>, std::set<std::string>> ops_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

Policy watch_hooks(Policy policy, std::string caller, HooksOf of) {
  const std::string name = policy.name();
  auto hooks = std::make_shared<Hooks>(std::move(caller), of);
  Policy watched = policy_per_region([policy = std::move(policy), hooks] {
    PolicyInstance instance = enter_policy(policy);
    if (hooks->is_over() || (instance.constant && packs_of(*instance.constant) == nullptr)) {
      return instance;
    }
    const auto region = std::make_shared<const WatchedRegion<Hooks>>(hooks);
    if (instance.fn) {
      instance.fn = [region, fn = std::move(instance.fn)](const OpContext& op) {
        return region->seen().decided(fn(op), op.op());
      };
    } else {
      instance.by_operator = [region, constant = std::exchange(instance.constant, std::nullopt),
                              by_operator = std::move(instance.by_operator)](const c10::OperatorHandle& op) {
        return region->seen().decided(constant ? *constant : by_operator(op), op);
      };
    }
    return instance;
  });
  return name.empty() ? watched : watched.named(name);
}

}  // namespace ac2::policies::internal
