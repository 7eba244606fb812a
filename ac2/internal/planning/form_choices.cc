#include "ac2/internal/planning/form_choices.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "ac2/internal/planning/op_order.h"

namespace ac2::internal {

namespace {

// When each value is first taken, on a clock that stands at `forward` when backward begins. Infinity: never.
std::vector<double> first_uses(const StepGraph& graph, double forward) {
  std::vector<double> uses(graph.values.size(), std::numeric_limits<double>::infinity());
  double passed = 0;
  for (const StepGraph::Event& event : graph.events) {
    if (event.kind == StepGraph::Event::kRuns) {
      passed += graph.ops[event.index].cost;
    } else if (event.kind == StepGraph::Event::kWanted) {
      const double taken = graph.taken_at.empty() ? forward - passed : graph.taken_at[event.index];
      double& use = uses[graph.hooks[event.index]];
      use = std::min(use, forward + taken);
    }
  }
  return uses;
}

// Ops whose results can be there and back before they are used.
void find_timely(const StepGraph& graph, double bytes_per_cost, FormChoices& choices) {
  double forward = 0;
  for (const StepGraph::Op& op : graph.ops) {
    forward += op.cost;
  }
  const std::vector<double> uses = first_uses(graph, forward);
  double passed = 0;
  auto next = choices.may.begin();
  for (uint32_t op = 0; op < graph.ops.size() && next != choices.may.end(); ++op) {
    passed += graph.ops[op].cost;
    if (*next != op) {
      continue;
    }
    double use = std::numeric_limits<double>::infinity();
    for (const uint32_t result : graph.ops[op].results) {
      use = std::min(use, uses[result]);
    }
    // A value that only replays take is as good as taken where backward is as far as forward was.
    const double until_use = (std::isfinite(use) ? use : 2 * forward - passed) - passed;
    if (2 * static_cast<double>(choices.freed[op]) <= until_use * bytes_per_cost) {
      choices.worthwhile.push_back(op);
    }
    ++next;
  }
}

// Ops of which packing and unpacking costs less, for the bytes that it frees, than they do.
void find_cheap(const StepGraph& graph, const StepUses& uses, FormChoices& choices) {
  for (const uint32_t op : choices.may) {
    double cost = 0;
    for (const uint32_t result : graph.ops[op].results) {
      if (const StepGraph::FormOfValue* held = graph.values[result].in_form(choices.form)) {
        cost += held->pack_cost + held->unpack_cost;
      }
    }
    const auto bytes = static_cast<double>(uses.kept_bytes(op));
    if (cost * bytes < graph.ops[op].cost * static_cast<double>(choices.freed[op])) {
      choices.worthwhile.push_back(op);
    }
  }
}

FormChoices choices_for(const StepGraph& graph, const StepUses& uses, double bytes_per_cost, uint8_t form) {
  FormChoices choices{.form = form,
                      .is_behind_copies = graph.forms[form] == StepGraph::Queue::kCopies,
                      .freed = std::vector<int64_t>(graph.ops.size())};
  for (uint32_t op = 0; op < graph.ops.size(); ++op) {
    if (graph.ops[op].fate != StepGraph::Fate::kOpen || uses.kept_bytes(op) == 0) {
      continue;
    }
    for (const uint32_t result : graph.ops[op].results) {
      const StepGraph::Value& value = graph.values[result];
      if (const StepGraph::FormOfValue* held = value.in_form(form)) {
        choices.freed[op] += value.bytes - held->bytes;
        choices.largest = std::max(choices.largest, choices.is_behind_copies ? value.bytes : 0);
      }
    }
    if (choices.freed[op] > 0) {
      choices.may.push_back(op);
    }
  }
  choices.is_behind_copies ? find_timely(graph, bytes_per_cost, choices) : find_cheap(graph, uses, choices);
  return choices;
}

}  // namespace

std::vector<FormChoices::Ops> FormChoices::orders(const StepGraph& graph, const std::vector<Keep>& kept) const {
  const auto is_kept = [&](uint32_t op) { return kept[op] != Keep::kNothing; };
  const Ops dearest = dearest_first(graph, freed, worthwhile);
  // The first of the program have the most time to be copied. To packing time is nothing.
  const Ops& base = is_behind_copies ? worthwhile : dearest;
  Ops kept_first = base, replayed_first = base;
  std::stable_partition(kept_first.begin(), kept_first.end(), is_kept);
  std::stable_partition(replayed_first.begin(), replayed_first.end(), [&](uint32_t op) { return !is_kept(op); });
  return {worthwhile, std::move(kept_first), dearest, std::move(replayed_first)};
}

std::vector<FormChoices> form_choices(const StepGraph& graph, const StepUses& uses, double bytes_per_cost) {
  std::vector<FormChoices> choices;
  for (uint8_t form = 0; form < graph.forms.size(); ++form) {
    FormChoices of_form = choices_for(graph, uses, bytes_per_cost, form);
    if (!of_form.may.empty()) {
      choices.push_back(std::move(of_form));
    }
  }
  return choices;
}

}  // namespace ac2::internal
