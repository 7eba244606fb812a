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
}

std::function<Policy::Instance()> Policy::share(PolicyFn fn) {
  TORCH_CHECK(fn, "A policy needs a function, but was given an empty std::function.");
  auto shared = std::make_shared<PolicyFn>(std::move(fn));
  return [shared] {
    return Instance{.constant = {}, .by_operator = {}, .fn = [shared](const OpContext& op) { return (*shared)(op); }};
  };
}

Policy Policy::factory(std::function<PolicyFn()> make) {
  TORCH_CHECK(make, "Policy::factory needs a function, but was given an empty std::function.");
  return Policy(std::function<Instance()>([make = std::move(make)] {
    PolicyFn fn = make();
    TORCH_CHECK(fn, "The function given to Policy::factory returned an empty PolicyFn.");
    return Instance{.constant = {}, .by_operator = {}, .fn = std::move(fn)};
  }));
}

Policy Policy::constant(PolicyDecision decision) {
  return Policy(std::function<Instance()>(
      [decision = std::move(decision)] { return Instance{.constant = decision, .by_operator = {}, .fn = {}}; }));
}

Policy Policy::by_operator(OperatorPolicyFn fn) {
  TORCH_CHECK(fn, "Policy::by_operator needs a function, but was given an empty std::function.");
  return Policy(std::function<Instance()>(
      [fn = std::move(fn)] { return Instance{.constant = {}, .by_operator = fn, .fn = {}}; }));
}

}  // namespace ac2
