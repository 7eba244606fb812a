#include "ac2/internal/following/plan_json.h"

#include <c10/util/Exception.h>

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "ac2/internal/libtorch/spelling.h"
#include "ac2/internal/policy_names/policy_names.h"
#include "ac2/internal/region/form_name.h"

namespace ac2::internal {

namespace {

using Json = nlohmann::ordered_json;

// Plans that copy are of version 3 and those that pack of version 4, so that an ac2 that does not know these refuses
// them.
constexpr int kVersion = 2;
constexpr int kVersionWithCopies = 3;
constexpr int kVersionWithForm = 4;
// The decision of ops whose results are packed in the plan's form.
constexpr const char* kPacked = "SaveWithHooks";
constexpr const char* kMark = "ac2_plan";
constexpr const char* kModelled = "modelled";
constexpr const char* kMeasured = "measured";

// A number or a text as it is; of arrays and objects, which have no bound, that they are one.
std::string shown(const Json& json) {
  return json.is_structured() ? absl::StrCat("an ", json.type_name())
                              : json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Each text once, in the order of its first use.
class Texts {
 public:
  size_t index_of(std::string text) {
    const auto [found, is_new] = indices_.try_emplace(text, texts_.size());
    if (is_new) {
      texts_.push_back(std::move(text));
    }
    return found->second;
  }
  std::vector<std::string> take() && { return std::move(texts_); }

 private:
  absl::flat_hash_map<std::string, size_t> indices_;
  std::vector<std::string> texts_;
};

CheckpointPolicy decision_named(const std::string& name) {
  for (const CheckpointPolicy policy :
       {CheckpointPolicy::MUST_SAVE, CheckpointPolicy::PREFER_SAVE, CheckpointPolicy::MUST_RECOMPUTE,
        CheckpointPolicy::PREFER_RECOMPUTE, CheckpointPolicy::MUST_CPU_OFFLOAD, CheckpointPolicy::PREFER_CPU_OFFLOAD}) {
    if (name == to_string(policy)) {
      return policy;
    }
  }
  C10_THROW_ERROR(Error, quoted(name) + " is no decision.");
}

c10::OperatorHandle operator_named(const std::string& name) {
  const size_t dot = name.find('.');
  const std::optional<c10::OperatorHandle> op = c10::Dispatcher::singleton().findSchema(
      {name.substr(0, dot), dot == std::string::npos ? std::string() : name.substr(dot + 1)});
  TORCH_CHECK(op, "it has the operator ", quoted(name),
              ", which this process does not have. Load the library that registers the operator before the plan, or "
              "plan again with this LibTorch.");
  return *op;
}

// JSON's numbers are checked by hand: nlohmann-json would read 1.5 as 1, and -1 as a huge size.
int64_t whole_number(const Json& json, const char* what, int64_t least, int64_t most) {
  TORCH_CHECK(json.is_number_integer(), what, " is ", shown(json), "; expected a whole number.");
  // A number that does not fit into an int64_t is a number_unsigned, and too large for each of the limits.
  const bool fits =
      !json.is_number_unsigned() || json.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  TORCH_CHECK(fits && json.get<int64_t>() >= least && json.get<int64_t>() <= most, what, " is ", shown(json),
              "; expected ", least, " to ", most, ".");
  return json.get<int64_t>();
}

// Throws c10::Error if the form has none.
std::string name_of(const PolicyDecision& form) {
  std::string name = name_of_form(*form.save_with_hooks());
  TORCH_CHECK(
      !name.empty(),
      "save_plan was given a plan that packs results in a form of the program's own, a SaveWithHooks, which has "
      "no name in a file. Plan with a form that has one (",
      spelled("policies::quantized_form", "ac2.policies.quantized_form"), "), or plan again in each job.");
  return name;
}

bool are_forms_linked() {
#ifdef AC2_HAS_POLICIES
  return true;
#else
  return form_named != nullptr;
#endif
}

PolicyDecision form_of(const std::string& name) {
  const std::optional<PolicyDecision> form = are_forms_linked() ? form_named(name) : std::nullopt;
  TORCH_CHECK(form, "it packs results in the form ", quoted(name),
              ", which this process does not have. Link the program with //policies, or plan again with this ac2.");
  return *form;
}

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

}  // namespace

std::string quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json plan_to_json(const PlannedStep& plan) {
  Texts ops, decisions;
  Json calls = Json::array();
  for (size_t i = 0; i < plan.calls.size(); ++i) {
    if (const std::optional<PlannedCall>& call = plan.calls[i]) {
      calls.push_back({ops.index_of(c10::toString(call->op.operator_name())), call->result_bytes,
                       decisions.index_of(plan.form && plan.packs[i] ? kPacked : to_string(plan.decisions[i]))});
    } else {
      calls.push_back(nullptr);
    }
  }
  Json json;
  json[kMark] = plan.is_inexact ? kVersionWithForm : plan.copies ? kVersionWithCopies : kVersion;
  json["bytes"] = plan.bytes;
  json["costs"] = plan.costs == CostSource::kModelled ? kModelled : kMeasured;
  if (plan.copies) {
    json["copies"] = {{"min_bytes", plan.copies->min_bytes},
                      {"in_flight_bytes", plan.copies->in_flight_bytes},
                      {"read_ahead_bytes", plan.copies->read_ahead_bytes}};
  }
  if (plan.form) {
    json["form"] = name_of(*plan.form);
  }
  json["ops"] = std::move(ops).take();
  json["decisions"] = std::move(decisions).take();
  json["calls"] = std::move(calls);
  return json;
}

void check_plan_version(const Json& json) {
  TORCH_CHECK(json.is_object() && json.contains(kMark), "it is no plan of ac2: it has no \"", kMark, "\".");
  const int64_t version = whole_number(json.at(kMark), "its version", 1, kMost);
  TORCH_CHECK(version >= kVersion && version <= kVersionWithForm, "it is of version ", version,
              ", and this ac2 reads versions ", kVersion, " to ", kVersionWithForm, ". Plan again with this ac2.");
}

std::shared_ptr<const PlannedStep> plan_from_json(const Json& json) {
  auto plan = std::make_shared<PlannedStep>();
  plan->bytes = whole_number(json.at("bytes"), "\"bytes\"", 1, kMost);
  const auto costs = json.at("costs").get<std::string>();
  TORCH_CHECK(costs == kModelled || costs == kMeasured, "\"costs\" is ", quoted(costs), "; expected \"", kModelled,
              "\" or \"", kMeasured, "\".");
  plan->costs = costs == kModelled ? CostSource::kModelled : CostSource::kMeasured;
  if (json.at(kMark) == kVersionWithCopies) {
    const Json& copies = json.at("copies");
    const auto bytes = [&](const char* name) { return whole_number(copies.at(name), name, 0, kMost); };
    plan->copies = OffloadOptions{.min_bytes = bytes("min_bytes"),
                                  .read_ahead_bytes = bytes("read_ahead_bytes"),
                                  .in_flight_bytes = bytes("in_flight_bytes")};
  }
  if (json.at(kMark) == kVersionWithForm) {
    plan->is_inexact = true;
    if (json.contains("form")) {
      plan->form = form_of(json.at("form").get<std::string>());
    }
  }

  std::vector<c10::OperatorHandle> ops;
  for (const Json& name : json.at("ops")) {
    ops.push_back(operator_named(name.get<std::string>()));
  }
  std::vector<CheckpointPolicy> decisions;
  std::optional<int64_t> packed;  // which of them it is
  for (const Json& json_name : json.at("decisions")) {
    const auto name = json_name.get<std::string>();
    const bool is_packed = plan->form && name == kPacked;
    packed = is_packed ? static_cast<int64_t>(decisions.size()) : packed;
    decisions.push_back(is_packed ? CheckpointPolicy::MUST_SAVE : decision_named(name));
  }
  const Json& calls = json.at("calls");
  TORCH_CHECK(calls.is_array(), "\"calls\" is no array.");
  for (const Json& call : calls) {
    if (call.is_null()) {
      plan->calls.emplace_back();
      plan->decisions.push_back(CheckpointPolicy::PREFER_SAVE);
      continue;
    }
    TORCH_CHECK(call.is_array() && call.size() == 3, "a call is ", shown(call),
                "; expected an operator, a number of bytes, and a decision.");
    const int64_t op = whole_number(call[0], "the operator of a call", 0, static_cast<int64_t>(ops.size()) - 1);
    const int64_t bytes = whole_number(call[1], "the bytes of a call", 0, kMost);
    const int64_t decision =
        whole_number(call[2], "the decision of a call", 0, static_cast<int64_t>(decisions.size()) - 1);
    plan->calls.push_back(PlannedCall{ops[op], bytes});
    plan->decisions.push_back(decisions[decision]);
    if (plan->form) {
      plan->packs.resize(plan->calls.size());
      plan->packs.back() = decision == packed;
    }
  }
  if (plan->form) {
    plan->packs.resize(plan->calls.size());
  }
  return plan;
}

}  // namespace ac2::internal
