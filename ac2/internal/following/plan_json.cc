#include "ac2/internal/following/plan_json.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <typeinfo>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "ac2/internal/forms/functions_form.h"
#include "ac2/internal/forms/ready_made_forms.h"
#include "ac2/internal/libtorch/spelling.h"

namespace ac2::internal {

namespace {

// Json is what is written, with its entries in the order of plan_file.h.
using Json = nlohmann::ordered_json;
// ReadJson is what is read, and looked up by name. An ordered_json would take time in the square of the number of
// entries, of which a stranger's file may have any number.
using ReadJson = nlohmann::json;

constexpr int kVersion = 5;
constexpr const char* kMark = "ac2_plan";
// Of a decision that is an object.
constexpr const char* kForm = "form";
constexpr const char* kModelled = "modelled";
constexpr const char* kMeasured = "measured";

// A number or a text as it is; of arrays and objects, which have no bound, that they are one.
std::string shown(const ReadJson& json) {
  return json.is_structured() ? absl::StrCat("an ", json.type_name())
                              : json.dump(-1, ' ', false, ReadJson::error_handler_t::replace);
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
int64_t whole_number(const ReadJson& json, const char* what, int64_t least, int64_t most) {
  TORCH_CHECK(json.is_number_integer(), what, " is ", shown(json), "; expected a whole number.");
  // A number that does not fit into an int64_t is a number_unsigned, and too large for each of the limits.
  const bool fits =
      !json.is_number_unsigned() || json.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  TORCH_CHECK(fits && json.get<int64_t>() >= least && json.get<int64_t>() <= most, what, " is ", shown(json),
              "; expected ", least, " to ", most, ".");
  return json.get<int64_t>();
}

// Throws c10::Error if the form cannot be found again by its name.
std::string name_of(const Form& form) {
  TORCH_CHECK(
      as_functions(form) == nullptr,
      "save() was called of a plan that packs results in a form made of functions of the program's own, which "
      "has no name in a file. Plan with a form that has one (",
      spelled("forms::quantized(8), or a subclass of ac2::Form", "ac2.forms.quantized(8), or a subclass of ac2.Form"),
      "), or plan again in each job.");
  std::string name = form.name();
  const FormPtr ready_made = ready_made_form(name);
  TORCH_CHECK(ready_made == nullptr || typeid(*ready_made) == typeid(form),
              "save() was called of a plan with a form of the "
              "program's own that has the name of a ready-made one, \"",
              name, "\", which load() would take in its place. Give the form another name.");
  return name;
}

// Of the program's own, or a ready-made one.
FormPtr form_of(const std::string& name, const Forms& own) {
  const auto found = std::find_if(own.begin(), own.end(), [&](const FormPtr& form) { return form->name() == name; });
  FormPtr form = found != own.end() ? *found : ready_made_form(name);
  TORCH_CHECK(form, "it packs results in the form ", quoted(name),
              ", which this process does not have. Give load() the form if it is the program's own, link the program "
              "with //policies if it is one of ac2::forms, or plan again with this ac2.");
  return form;
}

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

double cost_in(const ReadJson& json, const char* what) {
  TORCH_CHECK(json.is_number() && std::isfinite(json.get<double>()) && json.get<double>() >= 0, what, " is ",
              shown(json), "; expected a number that is not negative.");
  return json.get<double>();
}

Json summary_to_json(const PlanSummary& summary) {
  Json json = {{"forward_bytes", summary.forward_bytes}, {"peak_bytes", summary.peak_bytes},
               {"replayed_ops", summary.replayed_ops},   {"replay_cost", summary.replay_cost},
               {"forward_cost", summary.forward_cost},   {"uses", Json::array()}};
  for (const PlanSummary::Use& use : summary.uses) {
    json["uses"].push_back({use.form, use.values, use.bytes, use.cost});
  }
  if (summary.step_peak_bytes) {
    json["step_peak_bytes"] = *summary.step_peak_bytes;
  }
  if (summary.step_start_bytes) {
    json["step_start_bytes"] = *summary.step_start_bytes;
  }
  return json;
}

PlanSummary summary_from_json(const ReadJson& json) {
  const auto number = [&](const char* name) { return whole_number(json.at(name), name, 0, kMost); };
  const auto if_there = [&](const char* name) {
    return json.contains(name) ? std::optional<int64_t>(number(name)) : std::nullopt;
  };
  PlanSummary summary{.forward_bytes = number("forward_bytes"),
                      .peak_bytes = number("peak_bytes"),
                      .replayed_ops = number("replayed_ops"),
                      .replay_cost = cost_in(json.at("replay_cost"), "\"replay_cost\""),
                      .forward_cost = cost_in(json.at("forward_cost"), "\"forward_cost\""),
                      .step_peak_bytes = if_there("step_peak_bytes"),
                      .step_start_bytes = if_there("step_start_bytes")};
  for (const ReadJson& use : json.at("uses")) {
    TORCH_CHECK(use.is_array() && use.size() == 4, "the use of a form is ", shown(use),
                "; expected a name, numbers of values and bytes, and a cost.");
    summary.uses.push_back({use[0].get<std::string>(), whole_number(use[1], "the values in a form", 0, kMost),
                            whole_number(use[2], "the bytes in a form", 0, kMost),
                            cost_in(use[3], "the cost of a form")});
  }
  return summary;
}

}  // namespace

std::string quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json plan_to_json(const PlannedStep& plan) {
  Texts ops, decisions;
  Json calls = Json::array();
  const auto decision_of = [&](size_t call) -> Json {
    if (!plan.forms.empty() && plan.in_form[call] != PlannedStep::kInNoForm) {
      return {{kForm, name_of(*plan.forms[plan.in_form[call]])}};
    }
    return to_string(plan.decisions[call]);
  };
  for (size_t i = 0; i < plan.calls.size(); ++i) {
    if (const std::optional<PlannedCall>& call = plan.calls[i]) {
      calls.push_back({ops.index_of(c10::toString(call->op.operator_name())), call->result_bytes,
                       decisions.index_of(decision_of(i).dump())});
    } else {
      calls.push_back(nullptr);
    }
  }
  Json json;
  json[kMark] = kVersion;
  json["bytes"] = plan.bytes;
  json["costs"] = plan.costs == CostSource::kModelled ? kModelled : kMeasured;
  if (plan.is_inexact) {
    json["inexact"] = true;
  }
  if (plan.copies) {
    json["copies"] = {{"min_bytes", plan.copies->min_bytes},
                      {"in_flight_bytes", plan.copies->in_flight_bytes},
                      {"read_ahead_bytes", plan.copies->read_ahead_bytes}};
  }
  json["summary"] = summary_to_json(plan.summary);
  json["ops"] = std::move(ops).take();
  json["decisions"] = Json::array();
  for (const std::string& text : std::move(decisions).take()) {
    json["decisions"].push_back(Json::parse(text));
  }
  json["calls"] = std::move(calls);
  return json;
}

void check_plan_version(const ReadJson& json) {
  TORCH_CHECK(json.is_object() && json.contains(kMark), "it is no plan of ac2: it has no \"", kMark, "\".");
  const int64_t version = whole_number(json.at(kMark), "its version", 1, kMost);
  TORCH_CHECK(version == kVersion, "it is of version ", version, ", and this ac2 reads version ", kVersion,
              ". Plan again with this ac2.");
}

std::shared_ptr<const PlannedStep> plan_from_json(const ReadJson& json, const Forms& own) {
  auto plan = std::make_shared<PlannedStep>();
  plan->bytes = whole_number(json.at("bytes"), "\"bytes\"", 1, kMost);
  const auto costs = json.at("costs").get<std::string>();
  TORCH_CHECK(costs == kModelled || costs == kMeasured, "\"costs\" is ", quoted(costs), "; expected \"", kModelled,
              "\" or \"", kMeasured, "\".");
  plan->costs = costs == kModelled ? CostSource::kModelled : CostSource::kMeasured;
  if (json.contains("copies")) {
    const ReadJson& copies = json.at("copies");
    const auto bytes = [&](const char* name) { return whole_number(copies.at(name), name, 0, kMost); };
    plan->copies = OffloadOptions{.min_bytes = bytes("min_bytes"),
                                  .read_ahead_bytes = bytes("read_ahead_bytes"),
                                  .in_flight_bytes = bytes("in_flight_bytes")};
  }
  plan->is_inexact = json.contains("inexact") && json.at("inexact").get<bool>();
  plan->summary = summary_from_json(json.at("summary"));

  std::vector<c10::OperatorHandle> ops;
  for (const ReadJson& name : json.at("ops")) {
    ops.push_back(operator_named(name.get<std::string>()));
  }
  struct Decision {
    CheckpointPolicy policy = CheckpointPolicy::MUST_SAVE;
    uint8_t form = PlannedStep::kInNoForm;
  };
  std::vector<Decision> decisions;
  for (const ReadJson& decision : json.at("decisions")) {
    if (!decision.is_object()) {
      decisions.push_back({.policy = decision_named(decision.get<std::string>())});
      continue;
    }
    TORCH_CHECK(plan->forms.size() < PlannedStep::kInNoForm, "it has more forms than a plan can have.");
    decisions.push_back({.form = static_cast<uint8_t>(plan->forms.size())});
    plan->forms.push_back(form_of(decision.at(kForm).get<std::string>(), own));
  }
  const ReadJson& calls = json.at("calls");
  TORCH_CHECK(calls.is_array(), "\"calls\" is no array.");
  for (const ReadJson& call : calls) {
    if (call.is_null()) {
      plan->calls.emplace_back();
      plan->decisions.push_back(CheckpointPolicy::PREFER_SAVE);
      plan->in_form.push_back(PlannedStep::kInNoForm);
      continue;
    }
    TORCH_CHECK(call.is_array() && call.size() == 3, "a call is ", shown(call),
                "; expected an operator, a number of bytes, and a decision.");
    const int64_t op = whole_number(call[0], "the operator of a call", 0, static_cast<int64_t>(ops.size()) - 1);
    const int64_t bytes = whole_number(call[1], "the bytes of a call", 0, kMost);
    const int64_t decision =
        whole_number(call[2], "the decision of a call", 0, static_cast<int64_t>(decisions.size()) - 1);
    plan->calls.push_back(PlannedCall{ops[op], bytes});
    plan->decisions.push_back(decisions[decision].policy);
    plan->in_form.push_back(decisions[decision].form);
  }
  return plan;
}

}  // namespace ac2::internal
