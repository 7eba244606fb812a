#include "ac2/policy.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "ac2/internal/forms/form_access.h"
#include "ac2/internal/forms/functions_form.h"
#include "ac2/internal/policy_names/plan_policy.h"
#include "ac2/internal/policy_names/policy_names.h"
#include "ac2/policy_instance.h"

namespace ac2 {

namespace internal {

class PolicyAccess {
 public:
  static const std::function<PolicyInstance()>& enter_of(const Policy& policy) { return policy.enter_; }
  static const std::shared_ptr<const PlannedStep>& plan_of(const Policy& policy) { return policy.plan_; }
  static Policy make(std::function<PolicyInstance()> enter, std::shared_ptr<const PlannedStep> plan = nullptr) {
    Policy policy = Policy(std::move(enter));
    policy.plan_ = std::move(plan);
    return policy;
  }
};

}  // namespace internal

namespace {

using internal::as_functions;
using internal::FormAccess;
using internal::FunctionsForm;
using internal::NamedPolicy;
using internal::PolicyAccess;

// In every program, with or without policies/.
const std::vector<NamedPolicy>& own_policies() {
  static const auto& policies = *new std::vector<NamedPolicy>{
      {"recompute_all", [] { return Policy(CheckpointPolicy::PREFER_RECOMPUTE); }},
      {"must_save_all", [] { return Policy(CheckpointPolicy::MUST_SAVE); }},
  };
  return policies;
}

// The compiler may take the address of a function for one that is never null.
bool are_ready_made_policies_linked() {
#ifdef AC2_HAS_POLICIES
  return true;
#else
  return internal::ready_made_policies != nullptr;
#endif
}

const std::vector<NamedPolicy>& known_policies() {
  return are_ready_made_policies_linked() ? internal::ready_made_policies() : own_policies();
}

// A policy whose regions `enter` enters, watched for a SaveWithHooks whose pack is never called. Only a program that
// has made a SaveWithHooks pays for a look at each decision, in its first step.
class WatchedPolicy {
 public:
  explicit WatchedPolicy(std::function<PolicyInstance()> enter) : enter_(std::move(enter)) {}

  PolicyInstance enter() {
    if (!FormAccess::any_may_drop_tensors()) {
      return enter_();
    }
    std::call_once(once_, [this] { watched_ = internal::watched_hooks(PolicyAccess::make(enter_), "A policy"); });
    return enter_policy(*watched_);
  }

 private:
  const std::function<PolicyInstance()> enter_;
  std::once_flag once_;
  std::optional<Policy> watched_;
};

std::function<PolicyInstance()> watched(std::function<PolicyInstance()> enter) {
  if (!are_ready_made_policies_linked()) {
    return enter;
  }
  return [policy = std::make_shared<WatchedPolicy>(std::move(enter))] { return policy->enter(); };
}

[[noreturn]] void refuse_name(const std::string& found) {
  TORCH_CHECK(false, found, ". Choose one of: ",
              absl::StrJoin(known_policies(), ", ",
                            [](std::string* out, const NamedPolicy& policy) { out->append(policy.name); }),
              are_ready_made_policies_linked()
                  ? "; or pass a function, or one of ac2::policies that has parameters."
                  : ". This program links ac2 without its ready-made policies: depend on //policies for more names.");
}

std::string_view checked_name(const char* name) {
  if (name == nullptr) {
    refuse_name(
        "A policy was given a null pointer for its name, as std::getenv() returns for a variable that is not set");
  }
  return name;
}

}  // namespace

const char* to_string(CheckpointPolicy policy) {
  switch (policy) {
    case CheckpointPolicy::MUST_SAVE:
      return "MUST_SAVE";
    case CheckpointPolicy::PREFER_SAVE:
      return "PREFER_SAVE";
    case CheckpointPolicy::MUST_RECOMPUTE:
      return "MUST_RECOMPUTE";
    case CheckpointPolicy::PREFER_RECOMPUTE:
      return "PREFER_RECOMPUTE";
    case CheckpointPolicy::MUST_CPU_OFFLOAD:
      return "MUST_CPU_OFFLOAD";
    case CheckpointPolicy::PREFER_CPU_OFFLOAD:
      return "PREFER_CPU_OFFLOAD";
  }
  return "(no CheckpointPolicy)";
}

PolicyDecision::PolicyDecision(SaveWithHooks functions) : policy_(CheckpointPolicy::MUST_SAVE) {
  TORCH_CHECK(functions.pack && functions.unpack, "SaveWithHooks needs both functions, but ",
              functions.pack ? "unpack" : "pack", " is empty. Give it one, or use CheckpointPolicy::MUST_SAVE.");
  FormAccess::note_may_drop_tensors();
  form_ = std::make_shared<const FunctionsForm>(std::move(functions), /*exact=*/false);
}

PolicyDecision::PolicyDecision(FormTag /*tag*/, FormPtr form) : policy_(CheckpointPolicy::MUST_SAVE) {
  TORCH_CHECK(form != nullptr, "A policy decided for a form that is null. Give it one (forms::one_bit()).");
  const OffloadOptions* options = FormAccess::copied_with(*form);
  if (options == nullptr) {
    form_ = std::move(form);
    return;
  }
  TORCH_CHECK(*options == OffloadOptions(),
              "A policy decided for forms::host_memory() with options of its own. For what policies decide the options "
              "are those of the scope: give them as ScopeOptions::offload.");
  policy_ = CheckpointPolicy::MUST_CPU_OFFLOAD;
}

std::shared_ptr<const SaveWithHooks> PolicyDecision::save_with_hooks() const {
  const FunctionsForm* functions = form_ != nullptr ? as_functions(*form_) : nullptr;
  return functions != nullptr ? functions->functions() : nullptr;
}

bool PolicyDecision::are_same(const FormPtr& a, const FormPtr& b) {
  return a != nullptr && b != nullptr && typeid(*a) == typeid(*b) && a->name() == b->name();
}

void PolicyDecision::refuse(CheckpointPolicy policy) {
  TORCH_CHECK(false, "A policy decided ", static_cast<int>(policy),
              ", which is no CheckpointPolicy. Expected one of MUST_SAVE (0) to PREFER_CPU_OFFLOAD (5).");
}

std::string_view OpContext::name() const {
  return op_.operator_name().name;
}

std::string_view OpContext::overload() const {
  return op_.operator_name().overload_name;
}

bool OpContext::is(std::string_view qualified) const {
  const std::string_view base = name();
  if (!qualified.starts_with(base)) {
    return false;
  }
  if (qualified.size() == base.size()) {
    return true;
  }
  return qualified[base.size()] == '.' && qualified.substr(base.size() + 1) == overload();
}

Policy::Policy(const char* name) : Policy(checked_name(name)) {}

Policy::Policy(std::string_view name) {
  const std::vector<NamedPolicy>& known = known_policies();
  const auto found =
      std::find_if(known.begin(), known.end(), [name](const NamedPolicy& policy) { return policy.name == name; });
  if (found == known.end()) {
    refuse_name("Unknown policy \"" + std::string(name) + "\"");
  }
  *this = found->make();
  name_ = name;
}

Policy Policy::named(std::string name) const {
  Policy policy = *this;
  policy.name_ = std::move(name);
  return policy;
}

std::function<PolicyInstance()> Policy::share(PolicyFn fn) {
  TORCH_CHECK(fn, "A policy needs a function, but was given an empty std::function.");
  auto shared = std::make_shared<PolicyFn>(std::move(fn));
  return watched([shared] {
    PolicyInstance instance;
    instance.fn = [shared](const OpContext& op) { return (*shared)(op); };
    return instance;
  });
}

Policy Policy::factory(std::function<PolicyFn()> make) {
  TORCH_CHECK(make, "Policy::factory needs a function, but was given an empty std::function.");
  return Policy(watched([make = std::move(make)] {
    PolicyFn fn = make();
    TORCH_CHECK(fn, "The function given to Policy::factory returned an empty PolicyFn.");
    PolicyInstance instance;
    instance.fn = std::move(fn);
    return instance;
  }));
}

Policy Policy::constant(PolicyDecision decision) {
  const bool packs = decision.save_with_hooks() != nullptr;
  std::function<PolicyInstance()> enter = [decision = std::move(decision)] {
    PolicyInstance instance;
    instance.constant = decision;
    return instance;
  };
  return Policy(packs ? watched(std::move(enter)) : std::move(enter));
}

Policy Policy::by_operator(OperatorPolicyFn fn) {
  TORCH_CHECK(fn, "Policy::by_operator needs a function, but was given an empty std::function.");
  return Policy(watched([fn = std::move(fn)] {
    PolicyInstance instance;
    instance.by_operator = fn;
    return instance;
  }));
}

Policy Policy::with_names(NamePolicyFn fn) const {
  TORCH_CHECK(fn, "Policy::with_names needs a function, but was given an empty std::function.");
  Policy policy = Policy(std::function<PolicyInstance()>([inner = *this, fn = std::move(fn)] {
    PolicyInstance instance = internal::enter_for_region(inner);
    instance.may_drop_tensors = true;
    if (!instance.by_name) {
      instance.by_name = fn;
      return instance;
    }
    instance.by_name = [fn, otherwise = std::move(instance.by_name)](const NamedTensor& tensor) {
      std::optional<PolicyDecision> opinion = fn(tensor);
      return opinion ? opinion : otherwise(tensor);
    };
    return instance;
  }));
  policy.plan_ = plan_;
  policy.name_ = name_;
  return policy;
}

namespace internal {

Policy policy_of_plan(std::shared_ptr<const PlannedStep> plan, std::function<PolicyInstance()> enter) {
  return PolicyAccess::make(std::move(enter), std::move(plan));
}

const std::shared_ptr<const PlannedStep>& planned_step_of(const Policy& policy) {
  return PolicyAccess::plan_of(policy);
}

PolicyInstance enter_for_region(const Policy& policy) {
  const std::function<PolicyInstance()>& enter = PolicyAccess::enter_of(policy);
  TORCH_CHECK(enter,
              "This ac2::Policy was moved from, and decides nothing any more. Copy a policy that is used twice.");
  PolicyInstance instance = enter();
  if (!policy.name().empty()) {
    instance.name = policy.name();
  }
  return instance;
}

}  // namespace internal

PolicyInstance enter_policy(const Policy& policy) {
  TORCH_CHECK(internal::planned_step_of(policy) == nullptr,
              "A plan was made a part of another policy. A plan decides for the whole of a step and brings its own "
              "memory budget. Give it to a scope by itself, and give the other policies to scopes inside the step that "
              "is planned.");
  return internal::enter_for_region(policy);
}

Policy policy_per_region(std::function<PolicyInstance()> make) {
  TORCH_CHECK(make, "policy_per_region() needs a function, but was given an empty std::function.");
  return internal::PolicyAccess::make(std::function<PolicyInstance()>([make = std::move(make)] {
    PolicyInstance instance = make();
    const int set =
        (instance.constant ? 1 : 0) + (instance.by_operator ? 1 : 0) + (static_cast<bool>(instance.fn) ? 1 : 0);
    TORCH_CHECK(set == 1, "The function given to policy_per_region() returned a PolicyInstance with ", set,
                " of constant, by_operator and fn set; expected exactly one.");
    return instance;
  }));
}

std::optional<PolicyDecision> PolicyInstance::decide(const c10::OperatorHandle& op) const {
  if (constant) {
    return constant;
  }
  return by_operator ? std::optional(by_operator(op)) : std::nullopt;
}

PolicyDecision PolicyInstance::decide(const OpContext& op) const {
  if (constant) {
    return *constant;
  }
  return by_operator ? by_operator(op.op()) : fn(op);
}

std::optional<PolicyDecision> PolicyInstance::name_opinion(const NamedTensor& tensor) const {
  return by_name ? by_name(tensor) : std::nullopt;
}

std::optional<PolicyDecision> PolicyInstance::decide_op_of(const NamedTensor& tensor) const {
  return tensor.op != nullptr ? decide(*tensor.op) : constant;
}

}  // namespace ac2
