#include "ac2/current_decision.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "ac2/internal/libtorch/spelling.h"
#include "ac2/internal/libtorch/unrecorded.h"
#include "ac2/internal/operators/op_facts.h"
#include "ac2/internal/operators/op_lookup.h"
#include "ac2/internal/region/op_context_factory.h"
#include "ac2/internal/region/region.h"

namespace ac2 {

namespace {

using internal::OpFacts;

// The operators that `text` may mean; never empty. If `text` names no overload and no overload is without a name, these
// are all overloads but those that write; or all, if all of them write.
std::vector<const OpFacts*> operators_meant(const std::string& text) {
  TORCH_CHECK(!internal::is_pattern(text), "current_decision: \"", text,
              "\" is a pattern; expected the name of one operator, such as \"aten::mm\" or \"aten::add.Tensor\".");
  internal::check_registered("current_decision", text);
  const internal::QualifiedName name = internal::split_name(text);
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  if (const auto op = dispatcher.findSchema({name.base, name.overload.value_or("")})) {
    return {&internal::op_facts(*op)};
  }
  std::vector<const OpFacts*> pure;
  std::vector<const OpFacts*> all;
  for (const std::string& overload : internal::overloads_of(name.base)) {
    const c10::OperatorHandle op = dispatcher.findSchemaOrThrow(name.base.c_str(), overload.c_str());
    all.push_back(&internal::op_facts(op));
    if (!op.schema().is_mutable()) {
      pure.push_back(all.back());
    }
  }
  return pure.empty() ? all : pure;
}

std::string overloads_to_choose_from(const std::vector<const OpFacts*>& operators) {
  return absl::StrJoin(operators, ", ", [](std::string* out, const OpFacts* facts) { out->append(facts->name); });
}

}  // namespace

std::optional<PolicyDecision> current_decision(std::string_view op) {
  const std::vector<const OpFacts*> operators = operators_meant(std::string(op));
  internal::Region* region = internal::ThreadRegions::here().recording();
  if (region == nullptr) {
    return std::nullopt;
  }
  const internal::Unrecorded guard;
  std::optional<PolicyDecision> decision;
  for (const OpFacts* facts : operators) {
    const internal::ResolvedDecision* known = region->policies.known(*facts);
    TORCH_CHECK(known != nullptr, "current_decision(\"", op,
                "\"): a policy in force is a callable, which has to see the call to decide. Give current_decision its "
                "inputs and outputs too, or let the policy look at the operator alone (",
                internal::spelled("Policy::by_operator", "@ac2.by_operator"), ").");
    TORCH_CHECK(!decision || *decision == known->decision, "current_decision: the overloads of \"", op,
                "\" are decided differently. Name one: ", overloads_to_choose_from(operators), ".");
    decision = known->decision;
  }
  return decision;
}

std::optional<PolicyDecision> current_decision(std::string_view op, c10::ArrayRef<c10::IValue> inputs,
                                               c10::ArrayRef<c10::IValue> outputs) {
  const std::vector<const OpFacts*> operators = operators_meant(std::string(op));
  TORCH_CHECK(operators.size() == 1, "current_decision: \"", op,
              "\" has several overloads, and a call is of one. Name it: ", overloads_to_choose_from(operators), ".");
  const OpFacts& facts = *operators.front();
  TORCH_CHECK(inputs.size() == facts.num_arguments && outputs.size() == facts.num_returns,
              "current_decision: ", facts.name, " takes ", facts.num_arguments, " arguments and returns ",
              facts.num_returns, ", but was given ", inputs.size(), " inputs and ", outputs.size(),
              " outputs. Give one for each, defaults included: ", facts.op.schema(), ".");
  internal::Region* region = internal::ThreadRegions::here().recording();
  if (region == nullptr) {
    return std::nullopt;
  }
  const internal::Unrecorded guard;
  const int64_t index = region->tape->ops_so_far();
  return region->policies.decide(facts, internal::OpContextFactory::make(facts.op, inputs, outputs, index)).decision;
}

}  // namespace ac2
