#include "policies/by_module.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "ac2/internal/libtorch/model_names.h"
#include "ac2/internal/libtorch/warn_in_op.h"
#include "ac2/internal/locks/mutex.h"
#include "ac2/internal/modules/module_stack.h"
#include "ac2/policy_instance.h"
#include "policies/internal/common/idle_hooks.h"
#include "policies/internal/common/module_policy.h"
#include "policies/internal/common/module_rules.h"
#include "policies/internal/common/parameter_modules.h"
#include "policies/internal/common/ready_made.h"

namespace ac2::policies {

namespace {

using ac2::internal::CalledModule;
using ac2::internal::KnownModules;
using ac2::internal::ModuleName;
using ac2::internal::ModulePlace;
using ac2::internal::ModuleStack;
using internal::ModuleRules;
using internal::ParameterModules;

// The part of a policy that its regions share, on any threads.
class Shared {
 public:
  Shared(ModuleRules rules, int64_t model, std::unique_ptr<const ParameterModules> parameters)
      : rules_(std::move(rules)), model_(model), parameters_(std::move(parameters)) {}

  const ModuleRules& rules() const { return rules_; }
  const ParameterModules* parameters() const { return parameters_.get(); }

  const ModuleRules::Matching& at(const ModulePlace& place) {
    return matching(&place, [&] { return rules_.at(place, model_); });
  }
  const ModuleRules::Matching& at(const ParameterModules::Module& module) {
    return matching(&module, [&] { return rules_.at(module.path); });
  }

  // Whether the patterns are still to be compared with what there is. Not where they were when the policy was made.
  bool is_to_be_checked() const {
    return model_ == ModuleName::kOutermost && parameters_ == nullptr && !is_checked_.load(std::memory_order_relaxed);
  }
  // True once.
  bool begins_check() { return !is_checked_.exchange(true, std::memory_order_relaxed); }

 private:
  template <class Find>
  const ModuleRules::Matching& matching(const void* where, const Find& find) {
    const ac2::internal::MutexLock lock(mutex_);
    std::unique_ptr<const ModuleRules::Matching>& found = matching_[where];
    if (found == nullptr) {
      found = std::make_unique<const ModuleRules::Matching>(find());
    }
    return *found;
  }

  const ModuleRules rules_;
  const int64_t model_;
  const std::unique_ptr<const ParameterModules> parameters_;
  std::atomic<bool> is_checked_{false};
  ac2::internal::Mutex mutex_;
  // By a place or a module.
  absl::flat_hash_map<const void*, std::unique_ptr<const ModuleRules::Matching>> matching_ ABSL_GUARDED_BY(mutex_);
};

// The modules that were there in one region.
class Seen {
 public:
  void add(const ModulePlace& place) {
    if (std::find(places_.begin(), places_.end(), &place) != places_.end()) {
      return;
    }
    places_.push_back(&place);
    for (const std::shared_ptr<const CalledModule>& module : ModuleStack::here().modules()) {
      if (module->all() != nullptr && std::find(models_.begin(), models_.end(), module->all()) == models_.end()) {
        models_.push_back(module->all());
      }
    }
  }

  bool is_empty() const { return places_.empty(); }

  // Says what patterns match none of them; empty if there are none.
  std::string complaint(const ModuleRules& rules) const {
    KnownModules known;
    for (const std::shared_ptr<const KnownModules>& model : models_) {
      known.insert(known.end(), model->begin(), model->end());
    }
    for (const ModulePlace* place : places_) {
      if (place->around() != nullptr && models_.empty()) {
        const std::string* path = place->path_in(ModuleName::kOutermost);
        known.push_back({path == nullptr ? "" : *path, place->class_name()});
      }
    }
    const bool is_outside = known.empty();
    for (const std::string& class_name : ac2::internal::noted_classes()) {
      known.push_back({"", class_name});
    }
    const std::string text =
        rules.complaint(known, places_, "that was there in the first region in which the policy was asked");
    return text.empty() || !is_outside
               ? text
               : absl::StrCat(text,
                              " No op of the region ran in a module that is known. In C++ modules are known that "
                              "checkpoint_wrapper or apply_checkpointing has wrapped, or by the model's "
                              "named_parameters(), which by_module takes.");
  }

 private:
  std::vector<const ModulePlace*> places_;
  std::vector<std::shared_ptr<const KnownModules>> models_;
};

// The policy as one region has it.
class InRegion {
 public:
  explicit InRegion(std::shared_ptr<Shared> shared)
      : shared_(std::move(shared)), is_to_be_checked_(shared_->is_to_be_checked()) {}
  InRegion(const InRegion&) = delete;
  InRegion& operator=(const InRegion&) = delete;

  ~InRegion() {
    // A region that an exception ends may have seen a part of its modules.
    if (seen_.is_empty() || std::uncaught_exceptions() > 0 || !shared_->begins_check()) {
      return;
    }
    const std::string text = seen_.complaint(shared_->rules());
    if (text.empty()) {
      return;
    }
    try {
      ac2::internal::warn_in_op(text);
    } catch (...) {
      // A C++ program that makes errors of warnings gets none from the end of a region.
    }
  }

  PolicyDecision decide(const OpContext& op) {
    if (shared_->parameters() != nullptr) {
      return answer(module_of(op), op);
    }
    return answer(ModuleStack::here().place(), op);
  }

 private:
  const ParameterModules::Module& module_of(const OpContext& op) {
    if (const ParameterModules::Module* module = shared_->parameters()->of(op)) {
      last_ = module;
      return *module;
    }
    return last_ != nullptr ? *last_->around : shared_->parameters()->model();
  }

  template <class Where>
  PolicyDecision answer(const Where& where, const OpContext& op) {
    const c10::OperatorName& name = op.op().operator_name();
    const auto [found, is_new] = answers_.try_emplace({&where, &name}, nullptr);
    if (is_new) {
      found->second = shared_->rules().decide(shared_->at(where), name);
      note(where);
    }
    return found->second != nullptr ? *found->second : PolicyDecision(CheckpointPolicy::PREFER_RECOMPUTE);
  }

  void note(const ModulePlace& place) {
    if (is_to_be_checked_) {
      seen_.add(place);
    }
  }
  void note(const ParameterModules::Module& /*module*/) {}

  const std::shared_ptr<Shared> shared_;
  const bool is_to_be_checked_;
  Seen seen_;
  const ParameterModules::Module* last_ = nullptr;  // whose parameter an op took
  // By where the op ran, and the operator. Null if no rule matches.
  absl::flat_hash_map<std::pair<const void*, const c10::OperatorName*>, const PolicyDecision*> answers_;
};

Policy policy_of(ModuleRules rules, int64_t model, std::unique_ptr<const ParameterModules> parameters) {
  ac2::internal::want_modules();
  auto shared = std::make_shared<Shared>(std::move(rules), model, std::move(parameters));
  Policy policy = policy_per_region([shared] {
    PolicyInstance instance;
    instance.fn = [in_region = std::make_shared<InRegion>(shared)](const OpContext& op) {
      return in_region->decide(op);
    };
    return instance;
  });
  return internal::ready_made("by_module", internal::watch_hooks(std::move(policy), "by_module"));
}

void check_known(const ModuleRules& rules, const KnownModules& known) {
  const std::string complaint = rules.complaint(known, {}, "of the model");
  TORCH_CHECK(complaint.empty(), complaint);
}

}  // namespace

Policy by_module(const std::vector<std::pair<std::string, PolicyDecision>>& rules) {
  return policy_of(ModuleRules::parse(rules), ModuleName::kOutermost, nullptr);
}

Policy by_module(const std::vector<std::pair<std::string, PolicyDecision>>& rules,
                 const torch::OrderedDict<std::string, at::Tensor>& named_parameters) {
  ModuleRules parsed = ModuleRules::parse(rules);
  auto parameters = std::make_unique<const ParameterModules>(named_parameters);
  check_known(parsed, parameters->known());
  ac2::internal::note_model(named_parameters);
  return policy_of(std::move(parsed), ModuleName::kOutermost, std::move(parameters));
}

namespace internal {

Policy by_module_of(const std::vector<std::pair<std::string, PolicyDecision>>& rules, int64_t model,
                    const KnownModules& known) {
  ModuleRules parsed = ModuleRules::parse(rules);
  check_known(parsed, known);
  return policy_of(std::move(parsed), model, nullptr);
}

}  // namespace internal

}  // namespace ac2::policies
