#include "tests/fuzz/regions_switch.h"

#include <array>
#include <utility>

#include "ac2/expose.h"
#include "ac2/internal/modules/module_stack.h"
#include "ac2/internal/region/resting.h"
#include "ac2/names.h"
#include "ac2/policy_instance.h"
#include "policies/by_module.h"
#include "tests/fuzz/odd_forms.h"

namespace ac2::test {

at::Tensor& last_use() {
  thread_local at::Tensor tensor;
  return tensor;
}

namespace {

// One for all, because two different SaveWithHooks for one op are a conflict.
// The pack function may run while an op saves its arguments.
const PolicyDecision& clone_and_hand_back() {
  static const PolicyDecision decision = SaveWithHooks{[](const at::Tensor& t) {
                                                         last_use().reset();
                                                         return c10::IValue(t.clone());
                                                       },
                                                       [](const c10::IValue& v) { return v.toTensor(); }};
  return decision;
}

}  // namespace

bool is_of_budget(const std::string& message) {
  return message.find("memory budget") != std::string::npos;
}

bool ends_program(const std::string& message) {
  return is_of_budget(message) || message.find("out of memory") != std::string::npos;
}

Regions::Regions(const Setting* setting, ProgramEnd* end) : setting_(setting), end_(end) {
  if (setting == nullptr || setting->budget == 0) return;
  budget_ = setting->shared_budget ? setting->shared_budget : MemoryBudget(setting->budget, /*modelled_costs=*/true);
}

PolicyDecision Regions::the_must() const {
  switch (setting_->must) {
    case 0:
      return CheckpointPolicy::MUST_SAVE;
    case 1:
      return clone_and_hand_back();
    case 2:
      return CheckpointPolicy::MUST_RECOMPUTE;
    default:
      return CheckpointPolicy::MUST_CPU_OFFLOAD;
  }
}

PolicyDecision Regions::decision_of(uint32_t decision) const {
  switch (decision) {
    case 0:
      return the_must();
    case 1:
      return setting_->prefers_offload ? CheckpointPolicy::PREFER_CPU_OFFLOAD : CheckpointPolicy::PREFER_SAVE;
    default:
      return CheckpointPolicy::PREFER_RECOMPUTE;
  }
}

Policy Regions::policy_of(uint32_t policy) const {
  const Policy given = given_policy(policy);
  if (!setting_->drops) return given;
  return policy_per_region([given] {
    PolicyInstance instance = enter_policy(given);
    instance.fn = [inner = enter_policy(given)](const OpContext& op) {
      last_use().reset();
      return inner.decide(op);
    };
    instance.constant.reset();
    instance.may_drop_tensors = true;
    instance.by_operator = nullptr;
    return instance;
  });
}

Policy Regions::given_policy(uint32_t policy) const {
  if (policy == 0) return "recompute_all";
  if (policy == 1) return Policy::constant(decision_of(0));
  if (policy == 2) return Policy::constant(decision_of(1));
  if (setting_->modules) return policy_by_module(policy);
  std::vector<PolicyDecision> decisions;
  for (uint32_t i = 0; i < 5; ++i) decisions.push_back(decision_of((policy * 7 + i * i) % 5));
  return [policy, decisions](const OpContext& op) {
    return decisions[(static_cast<uint32_t>(op.index()) * 2654435761U + policy * 40503U) >> 13 & 3U];
  };
}

Policy Regions::policy_by_module(uint32_t policy) const {
  static constexpr std::array kPatterns = {"Layer :: aten.mul", "Inner", "** :: aten.sin", "Layer",
                                           "** :: aten.mul",    "**"};
  // in_modules() may not have run when the first region ends.
  for (const char* name : {"Layer", "Inner"}) internal::note_class(name);
  std::vector<std::pair<std::string, PolicyDecision>> rules;
  for (size_t i = 0; i < kPatterns.size(); ++i) {
    if ((policy >> i & 1U) != 0 || rules.empty()) rules.emplace_back(kPatterns[i], decision_of((policy / 3 + i) % 3));
  }
  return policies::by_module(rules);
}

// By what is written in the name.
Policy Regions::with_names(const Policy& policy) const {
  if (!setting_->names) return policy;
  return policy.with_names(
      [decisions = std::array{decision_of(0), decision_of(1), decision_of(2)}](const NamedTensor& tensor) {
        last_use().reset();
        return decisions.at(tensor.name[0] - '0');
      });
}

Forms Regions::room_forms() const {
  if (!budget_.has_value()) return {};
  Forms forms;
  if (setting_->packs) forms = odd_forms(setting_->policy);
  if (setting_->copies) forms.push_back(forms::host_memory());
  return forms;
}

void Regions::begin() {
  if (setting_ != nullptr && setting_->one_region) {
    enable();
    while (scopes_.size() > outermost_scopes()) scopes_.pop_back();
    if (setting_->outermost && scopes_.empty()) {
      scopes_.push_back(std::make_unique<PolicyScope>(*setting_->outermost));
      traces_.push_back(scopes_.back()->trace());
    }
    return;
  }
  end();
  if (setting_ != nullptr) {
    scopes_.push_back(std::make_unique<PolicyScope>(
        with_names(policy_of(setting_->policy)),
        ScopeOptions{.memory_budget = budget_,
                     .verify = setting_->verify,
                     .timeline = setting_->timeline,
                     .offload = setting_->offload,
                     .keep_for_next_backward = setting_->keeps && !budget_ && !setting_->outermost,
                     .forms = room_forms()}));
    traces_.push_back(scopes_.back()->trace());
    if (setting_->rests) internal::let_region_rest();
  }
}

void Regions::before_kernel(const at::Tensor& tensor) const {
  if (setting_ != nullptr && setting_->verify) expose(tensor);
}

void Regions::open(uint32_t policy) {
  if (setting_ == nullptr) return;
  if (!setting_->inner_policies) policy = setting_->policy;
  scopes_.push_back(std::make_unique<PolicyScope>(with_names(policy_of(policy))));
}

size_t Regions::outermost_scopes() const {
  return setting_ != nullptr && setting_->one_region && !setting_->outermost ? 0 : 1;
}

void Regions::close() {
  if (scopes_.size() > outermost_scopes()) scopes_.pop_back();
}

void Regions::end() {
  enable();
  while (!scopes_.empty()) scopes_.pop_back();
}

void Regions::disable() {
  if (setting_ != nullptr && !disabled_) disabled_ = std::make_unique<DisableCheckpointing>();
}

void Regions::enable() {
  disabled_.reset();
}

void Regions::tag(const at::Tensor& tensor, uint32_t decision) {
  if (setting_ == nullptr || !setting_->tags) return;
  if (decision < 3) {
    tag_with_policy(tensor, decision_of(decision));
  } else {
    name_tensor(tensor, std::to_string(decision - 3));
  }
}

}  // namespace ac2::test
