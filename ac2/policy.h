// The decisions on the results of an op, and the functions that take them.
//
//   ac2::Policy keep_products = [](const ac2::OpContext& op) {
//     return op.is("aten::mm") ? ac2::CheckpointPolicy::MUST_SAVE
//                              : ac2::CheckpointPolicy::PREFER_RECOMPUTE;
//   };
//   ac2::PolicyScope scope(keep_products);
//
// A policy runs below autograd. The tensors that it sees have neither requires_grad() nor a grad_fn(), whatever the
// program's tensors have, and what it computes from them is recorded by no autograd.
//
// Threads: a Policy is a value; copies share the callable that they were made from. The callable runs on the thread
// that opened the region, one call at a time for each region. A callable that several threads use at once must itself
// be thread-safe.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "ac2/form.h"

namespace c10 {
class OperatorHandle;
}

namespace ac2 {

struct PolicyInstance;  // ac2/policy_instance.h

namespace internal {
class OpContextFactory;
class PolicyAccess;
struct PlannedStep;
}  // namespace internal

// The six names, meanings and order of torch.utils.checkpoint.CheckpointPolicy.
enum class CheckpointPolicy : uint8_t {
  MUST_SAVE,
  PREFER_SAVE,
  MUST_RECOMPUTE,
  PREFER_RECOMPUTE,
  MUST_CPU_OFFLOAD,    // saves in the host's memory (ac2/offload.h); a tensor on the CPU is saved where it is
  PREFER_CPU_OFFLOAD,  // the same, as a preference
};

// "MUST_SAVE" and so on.
const char* to_string(CheckpointPolicy policy);

// The decision of a policy for one op. Implicit from CheckpointPolicy, a form (ac2/form.h), SaveWithHooks, and bool
// (true = MUST_SAVE, false = PREFER_RECOMPUTE).
class PolicyDecision {
 public:
  // Throws c10::Error for a number that is none of the six.
  PolicyDecision(CheckpointPolicy policy) : policy_(policy) {  // NOLINT(google-explicit-constructor)
    if (policy > CheckpointPolicy::PREFER_CPU_OFFLOAD) {
      refuse(policy);
    }
  }
  PolicyDecision(SaveWithHooks functions);  // NOLINT(google-explicit-constructor)
  // The results are saved in the form; one that it does not take is saved as it is. Throws c10::Error for a null form,
  // and for forms::host_memory() with options of its own.
  template <std::derived_from<Form> F>
  PolicyDecision(std::shared_ptr<F> form)  // NOLINT(google-explicit-constructor)
      : PolicyDecision(FormTag(), std::move(form)) {}
  // A template, so that pointers and lambdas, which convert to bool, are not taken for one.
  template <std::same_as<bool> Bool>
  PolicyDecision(Bool save)  // NOLINT(google-explicit-constructor)
      : policy_(save ? CheckpointPolicy::MUST_SAVE : CheckpointPolicy::PREFER_RECOMPUTE) {}

  // MUST_SAVE for a form and for SaveWithHooks.
  CheckpointPolicy policy() const { return policy_; }
  // Null unless the decision was made from a form or from SaveWithHooks. Copies of a decision share it.
  const FormPtr& form() const { return form_; }
  // Null unless the decision was made from SaveWithHooks.
  std::shared_ptr<const SaveWithHooks> save_with_hooks() const;

  bool is_must() const {
    return policy_ == CheckpointPolicy::MUST_SAVE || policy_ == CheckpointPolicy::MUST_RECOMPUTE ||
           policy_ == CheckpointPolicy::MUST_CPU_OFFLOAD;
  }
  bool saves() const {
    return policy_ != CheckpointPolicy::MUST_RECOMPUTE && policy_ != CheckpointPolicy::PREFER_RECOMPUTE;
  }
  bool offloads() const {
    return policy_ == CheckpointPolicy::MUST_CPU_OFFLOAD || policy_ == CheckpointPolicy::PREFER_CPU_OFFLOAD;
  }
  // Equal decisions have the same policy and one form, or two of one class and name.
  friend bool operator==(const PolicyDecision& a, const PolicyDecision& b) {
    return a.policy_ == b.policy_ && (a.form_ == b.form_ || are_same(a.form_, b.form_));
  }

 private:
  struct FormTag {};

  PolicyDecision(FormTag /*tag*/, FormPtr form);
  [[noreturn]] static void refuse(CheckpointPolicy policy);
  static bool are_same(const FormPtr& a, const FormPtr& b);

  CheckpointPolicy policy_;
  FormPtr form_;
};

// An op as a policy sees it, after the op ran. Valid only during the call.
class OpContext {
 public:
  OpContext(const OpContext&) = delete;
  OpContext& operator=(const OpContext&) = delete;

  const c10::OperatorHandle& op() const { return op_; }
  std::string_view name() const;      // "aten::add"
  std::string_view overload() const;  // "Tensor", or "" for the default overload
  // True for "aten::add" (any overload) and for "aten::add.Tensor" (that one).
  bool is(std::string_view qualified) const;
  // An element for each argument of the schema, keyword arguments included. Their tensors' contents are those after the
  // op.
  c10::ArrayRef<c10::IValue> inputs() const { return inputs_; }
  // An element for each return of the schema.
  c10::ArrayRef<c10::IValue> outputs() const { return outputs_; }
  // How many ops the outermost region saw before this one.
  int64_t index() const { return index_; }

 private:
  friend class internal::OpContextFactory;
  OpContext(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> inputs, c10::ArrayRef<c10::IValue> outputs,
            int64_t index)
      : op_(op), inputs_(inputs), outputs_(outputs), index_(index) {}

  const c10::OperatorHandle& op_;
  c10::ArrayRef<c10::IValue> inputs_;
  c10::ArrayRef<c10::IValue> outputs_;
  int64_t index_;
};

// A tensor to which the program has given a name (ac2/names.h). Valid only during the call.
struct NamedTensor {
  std::string_view name;
  const at::Tensor& tensor;
  // The operator that computed it, or null if no op of the region did.
  const c10::OperatorHandle* op = nullptr;
};

using PolicyFn = std::function<PolicyDecision(const OpContext&)>;
// The function of a policy that looks at the operator alone. The function is asked once per operator and region, before
// the op runs.
using OperatorPolicyFn = std::function<PolicyDecision(const c10::OperatorHandle&)>;
// The function of a policy for named tensors. Null means nothing: the decision for the tensor's op stands.
using NamePolicyFn = std::function<std::optional<PolicyDecision>(const NamedTensor&)>;

// Decides op by op. A policy is not asked about views, nor about ops that return no tensor: they have nothing to save.
// ac2/policy_instance.h has the parts for a policy that is made of other policies.
class Policy {
 public:
  // The ready-made policy of this name: "recompute_all", "must_save_all", and, in a program that links policies/ too,
  // each that has no parameters, such as "speed" (policies/by_name.h). Throws c10::Error, "Unknown policy", which lists
  // the names that the program knows; also for a null pointer, such as std::getenv() returns.
  Policy(std::string_view name);                                       // NOLINT(google-explicit-constructor)
  Policy(const char* name);                                            // NOLINT(google-explicit-constructor)
  Policy(const std::string& name) : Policy(std::string_view(name)) {}  // NOLINT(google-explicit-constructor)
  Policy(std::nullptr_t) = delete;

  // The same as constant().
  Policy(CheckpointPolicy decision) : Policy(constant(decision)) {}  // NOLINT(google-explicit-constructor)

  // The same as constant(). A template, so that no list in braces is taken for two functions.
  template <std::same_as<SaveWithHooks> Functions>
  Policy(Functions functions)  // NOLINT(google-explicit-constructor)
      : Policy(constant(std::move(functions))) {}

  // The same as constant().
  template <std::derived_from<Form> F>
  Policy(std::shared_ptr<F> form)  // NOLINT(google-explicit-constructor)
      : Policy(constant(std::move(form))) {}

  // All regions that are entered with this policy, or with a copy of it, call the same `fn`.
  template <class Fn>
  requires(!std::same_as<std::remove_cvref_t<Fn>, Policy> && std::is_constructible_v<PolicyFn, Fn> &&
           std::is_invocable_r_v<PolicyDecision, std::remove_cvref_t<Fn>&, const OpContext&>)
      Policy(Fn&& fn)  // NOLINT(google-explicit-constructor)
      : Policy(share(PolicyFn(std::forward<Fn>(fn)))) {}

  // Calls `make` for each region entered, so that each has a PolicyFn of its own, with state of its own.
  static Policy factory(std::function<PolicyFn()> make);
  // The same decision for every op. The cheapest policy, which costs nothing per op.
  static Policy constant(PolicyDecision decision);
  static Policy by_operator(OperatorPolicyFn fn);

  // This policy, with `fn` for named tensors. Where `fn` returns null for a tensor, what this policy says of the name
  // counts. ac2/names.h says how the policies of nested scopes are resolved.
  Policy with_names(NamePolicyFn fn) const;
  // The same policy, called `name` in reports. The policies of ac2::policies have the name of the function that makes
  // them; others have no name.
  Policy named(std::string name) const;
  const std::string& name() const { return name_; }

 private:
  friend class internal::PolicyAccess;

  explicit Policy(std::function<PolicyInstance()> enter) : enter_(std::move(enter)) {}
  static std::function<PolicyInstance()> share(PolicyFn fn);

  std::function<PolicyInstance()> enter_;
  // What a Plan (ac2/plan.h) has chosen, with the budget that a scope takes from it; null for all other policies.
  std::shared_ptr<const internal::PlannedStep> plan_;
  std::string name_;
};

}  // namespace ac2
