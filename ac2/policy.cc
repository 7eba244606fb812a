#include "ac2/policy.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

namespace ac2 {

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

PolicyDecision::PolicyDecision(SaveWithHooks hooks) : policy_(CheckpointPolicy::MUST_SAVE) {
  TORCH_CHECK(hooks.pack && hooks.unpack, "SaveWithHooks needs both functions, but ", hooks.pack ? "unpack" : "pack",
              " is empty. Give it one, or use CheckpointPolicy::MUST_SAVE.");
  hooks_ = std::make_shared<const SaveWithHooks>(std::move(hooks));
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

Policy::Policy(std::string_view name) {
  CheckpointPolicy policy{};
  if (name == "recompute_all") {
    policy = CheckpointPolicy::PREFER_RECOMPUTE;
  } else if (name == "must_save_all") {
    policy = CheckpointPolicy::MUST_SAVE;
  } else {
    TORCH_CHECK(false, "Unknown policy \"", name,
                "\". Known by name are \"recompute_all\" and \"must_save_all\"; for others pass a function, or one of "
                "ac2::policies.");
  }
  *this = constant(policy);
  name_ = name;
}

Policy Policy::named(std::string name) const {
  Policy policy = *this;
  policy.name_ = std::move(name);
  return policy;
}

Policy::Instance Policy::enter() const {
  Instance instance = enter_();
  if (!name_.empty()) {
    instance.name = name_;
  }
  return instance;
}

std::function<Policy::Instance()> Policy::share(PolicyFn fn) {
  TORCH_CHECK(fn, "A policy needs a function, but was given an empty std::function.");
  auto shared = std::make_shared<PolicyFn>(std::move(fn));
  return [shared] {
    Instance instance;
    instance.fn = [shared](const OpContext& op) { return (*shared)(op); };
    return instance;
  };
}

Policy Policy::factory(std::function<PolicyFn()> make) {
  TORCH_CHECK(make, "Policy::factory needs a function, but was given an empty std::function.");
  return Policy(std::function<Instance()>([make = std::move(make)] {
    PolicyFn fn = make();
    TORCH_CHECK(fn, "The function given to Policy::factory returned an empty PolicyFn.");
    Instance instance;
    instance.fn = std::move(fn);
    return instance;
  }));
}

Policy Policy::constant(PolicyDecision decision) {
  return Policy(std::function<Instance()>([decision = std::move(decision)] {
    Instance instance;
    instance.constant = decision;
    return instance;
  }));
}

Policy Policy::by_operator(OperatorPolicyFn fn) {
  TORCH_CHECK(fn, "Policy::by_operator needs a function, but was given an empty std::function.");
  return Policy(std::function<Instance()>([fn = std::move(fn)] {
    Instance instance;
    instance.by_operator = fn;
    return instance;
  }));
}

Policy Policy::with_names(NamePolicyFn fn) const {
  TORCH_CHECK(fn, "Policy::with_names needs a function, but was given an empty std::function.");
  Policy policy = Policy(std::function<Instance()>([enter = enter_, fn = std::move(fn)] {
    Instance instance = enter();
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
  policy.name_ = name_;
  return policy;
}

Policy Policy::per_region(std::function<Instance()> make) {
  TORCH_CHECK(make, "Policy::per_region needs a function, but was given an empty std::function.");
  return Policy(std::function<Instance()>([make = std::move(make)] {
    Instance instance = make();
    const int set =
        (instance.constant ? 1 : 0) + (instance.by_operator ? 1 : 0) + (static_cast<bool>(instance.fn) ? 1 : 0);
    TORCH_CHECK(set == 1, "The function given to Policy::per_region returned an Instance with ", set,
                " of constant, by_operator and fn set; expected exactly one.");
    return instance;
  }));
}

std::optional<PolicyDecision> Policy::Instance::decide(const c10::OperatorHandle& op) const {
  if (constant) {
    return constant;
  }
  return by_operator ? std::optional(by_operator(op)) : std::nullopt;
}

PolicyDecision Policy::Instance::decide(const OpContext& op) const {
  if (constant) {
    return *constant;
  }
  return by_operator ? by_operator(op.op()) : fn(op);
}

std::optional<PolicyDecision> Policy::Instance::name_opinion(const NamedTensor& tensor) const {
  return by_name ? by_name(tensor) : std::nullopt;
}

std::optional<PolicyDecision> Policy::Instance::decide_op_of(const NamedTensor& tensor) const {
  return tensor.op != nullptr ? decide(*tensor.op) : constant;
}

}  // namespace ac2
