#include "ac2/internal/planning/form_planner.h"

#include <algorithm>
#include <array>
#include <utility>

#include "ac2/internal/planning/op_order.h"

namespace ac2::internal {

namespace {

using Fate = StepGraph::Fate;
using FormOfValue = StepGraph::FormOfValue;

// The values on their way to the host may take so much of the bytes, and so may those on their way back.
constexpr int64_t kWindow = 8;
constexpr std::array<int64_t, 3> kOtherWindows = {4, 16, 32};
constexpr std::array<int64_t, 3> kWindowsAlone = {4, 8, 16};
// In search of the smallest plan, the results of each op, of every second one and so on are packed, and those of the
// dearest ops that have such a share of the bytes which packing can free.
constexpr std::array<size_t, 3> kDistances = {1, 2, 4};
constexpr std::array<double, 2> kDearestShares = {0.25, 0.5};

bool is_better_than(const std::optional<FormPlan>& best, const FormPlan& plan) {
  return !best || is_better(plan.keep.outcome, best->keep.outcome);
}

bool is_kept(const KeepPlan& plan, uint32_t op) {
  return plan.kept[op] != Keep::kNothing;
}

}  // namespace

FormPlanner::FormPlanner(const StepGraph& graph, Planner& planner, double bytes_per_cost)
    : graph_(graph),
      planner_(planner),
      bytes_per_cost_(bytes_per_cost),
      choices_(form_choices(graph, planner.simulator().uses(), bytes_per_cost)) {
  for (const FormChoices& choices : choices_) {
    largest_ = std::max(largest_, choices.largest);
  }
}

int64_t FormPlanner::window_of(int64_t part, int64_t bytes) const {
  if (largest_ == 0) {
    return 0;
  }
  const int64_t of_step = bytes / graph_.in_flight;
  const int64_t wish = of_step / part;
  if (wish < largest_) {
    return 4 * largest_ <= of_step ? largest_ : wish;
  }
  return wish - wish % largest_;
}

// --- plans around what is held in forms ------------------------------------------------------------------------------

StepGraph FormPlanner::without(const InForms& held) const {
  StepGraph rest = graph_;
  for (uint32_t op = 0; op < held.size(); ++op) {
    if (!is_in_a_form(held[op])) {
      continue;
    }
    rest.ops[op].fate = Fate::kSaved;
    for (const uint32_t result : rest.ops[op].results) {
      StepGraph::Value& value = rest.values[result];
      if (const FormOfValue* form = value.in_form(form_of(held[op]))) {
        value.unpacked_bytes = std::exchange(value.bytes, form->bytes);
      }
    }
  }
  return rest;
}

FormPlan FormPlanner::as_plan(std::vector<Keep> kept, const InForms& held, int64_t window) {
  for (uint32_t op = 0; op < held.size(); ++op) {
    if (is_in_a_form(held[op])) {
      kept[op] = held[op];
    }
  }
  const CopySpeedAndWindow copies{bytes_per_cost_, window, window};
  planner_.set_copies(copies);
  return {planner_.evaluate(std::move(kept)), copies};
}

std::optional<FormPlan> FormPlanner::plan_around(const InForms& held, int64_t window, int64_t bytes) {
  int64_t on_their_way = 0;
  for (const FormChoices& choices : choices_) {
    for (uint32_t op = 0; choices.is_behind_copies && op < held.size(); ++op) {
      on_their_way += held[op] == keep_in(choices.form) ? choices.freed[op] : 0;
    }
  }
  const StepGraph rest = without(held);
  Planner planner(rest);
  int64_t target = bytes - std::min(on_their_way, 2 * window) - (graph_.in_flight - 1) * std::min(on_their_way, window);
  std::optional<FormPlan> best;
  // The bytes on their way are not always the most: what is left is given to the rest.
  for (int i = 0; i < 2 && target > 0; ++i) {
    std::optional<KeepPlan> found = planner.sketch(target);
    if (!found) {
      break;
    }
    FormPlan plan = as_plan(std::move(found->kept), held, window);
    const int64_t left = bytes - plan.keep.outcome.total_bytes;
    if (left >= 0 && is_better_than(best, plan)) {
      best = std::move(plan);
    }
    if (on_their_way == 0 || (left >= 0 && left <= bytes / 50)) {
      break;
    }
    target += left;
  }
  return best;
}

// --- the search ------------------------------------------------------------------------------------------------------

std::optional<FormPlanner::Searched> FormPlanner::search(const FormChoices& choices, const InForms& held, int64_t bytes,
                                                         const KeepPlan& without_forms) {
  std::optional<FormPlan> best;
  InForms best_held;
  const auto consider = [&](const InForms& with, int64_t window) {
    std::optional<FormPlan> plan = plan_around(with, window, bytes);
    if (plan && is_better_than(best, *plan)) {
      best = std::move(plan);
      best_held = with;
    }
  };
  const auto beside = [&](const Ops& ops) {
    InForms with = held;
    for (const uint32_t op : ops) {
      with[op] = keep_in(choices.form);
    }
    return with;
  };
  const int64_t window = window_of(kWindow, bytes);
  std::vector<InForms> tried = {held};
  const auto try_set = [&](const Ops& ops) {
    InForms with = beside(ops);
    if (std::find(tried.begin(), tried.end(), with) == tried.end()) {
      consider(with, window);
      tried.push_back(std::move(with));
    }
  };
  for (Ops& order : choices.orders(graph_, without_forms.kept)) {
    std::erase_if(order, [&](uint32_t op) { return is_in_a_form(held[op]); });
    for (const double share : kShares) {
      try_set(first_share(choices.freed, order, share));
    }
  }
  if (choices.is_behind_copies) {
    const InForms with = best ? best_held : beside(choices.worthwhile);
    for (const int64_t part : kOtherWindows) {
      consider(with, window_of(part, bytes));
    }
  } else if (std::none_of(held.begin(), held.end(), &is_in_a_form)) {
    try_set(choices.may);
  }
  return best ? std::optional(Searched{std::move(best_held), *std::move(best)}) : std::nullopt;
}

void FormPlanner::improve(int64_t bytes, const std::vector<const FormChoices*>& forms, FormPlan& plan) {
  std::vector<Planner::FormTries> tries;
  for (const FormChoices* choices : forms) {
    tries.push_back({choices->form, dearest_first(graph_, choices->freed, choices->may)});
  }
  planner_.set_copies(plan.copies);
  planner_.try_forms(bytes, tries, plan.keep);
}

std::optional<FormPlan> FormPlanner::solve(int64_t bytes) {
  const int64_t window = window_of(kWindow, bytes);
  std::optional<FormPlan> best;
  if (std::optional<KeepPlan> plan = planner_.solve(bytes)) {
    best = FormPlan{*std::move(plan), {bytes_per_cost_, 0, 0}};
  }
  // Copies that would all come too late are left out, unless nothing else is small enough.
  std::vector<const FormChoices*> forms;
  for (const FormChoices& choices : choices_) {
    if (!best || !choices.worthwhile.empty() || !choices.is_behind_copies) {
      forms.push_back(&choices);
    }
  }
  if (forms.empty() || (best && best->keep.outcome.extra_cost() == 0)) {
    return best;
  }
  const bool has_plain = best.has_value();
  const KeepPlan without_forms = best ? best->keep : planner_.smallest();
  const auto consider = [&](const FormPlan& plan) {
    // A plan that no form helps is the Planner's, if the Planner has one.
    if ((plan.keep.outcome.uses_a_form() || !has_plain) && is_better_than(best, plan)) {
      best = plan;
    }
  };
  std::optional<FormPlan> plain;
  if (has_plain) {
    plain = FormPlan{without_forms, {bytes_per_cost_, window, window}};
  } else if (const FormPlan& least = smallest(); least.keep.outcome.total_bytes <= bytes) {
    plain = least;
  }
  std::vector<std::optional<Searched>> searched;
  std::vector<FormPlan> improved;
  const auto improve_and_consider = [&](FormPlan plan, const std::vector<const FormChoices*>& with) {
    improve(bytes, with, plan);
    consider(plan);
    improved.push_back(std::move(plan));
  };
  const InForms none(graph_.ops.size(), Keep::kNothing);
  for (const FormChoices* choices : forms) {
    searched.push_back(choices->worthwhile.empty() && choices->is_behind_copies
                           ? std::nullopt
                           : search(*choices, none, bytes, without_forms));
    if (searched.back()) {
      improve_and_consider(searched.back()->plan, {choices});
    }
    if (std::optional<FormPlan> alone = this->alone(choices->form, bytes)) {
      improve_and_consider(*std::move(alone), {choices});
    }
    if (plain) {
      improve_and_consider(*plain, {choices});
    }
  }
  if (forms.size() > 1) {
    std::vector<FormPlan> starts = std::exchange(improved, {});
    for (size_t first = 0; first < forms.size(); ++first) {
      for (size_t second = 0; second < forms.size() && searched[first]; ++second) {
        if (first != second) {
          if (std::optional<Searched> both = search(*forms[second], searched[first]->held, bytes, without_forms)) {
            starts.push_back(std::move(both->plan));
          }
        }
      }
    }
    for (FormPlan& plan : starts) {
      improve_and_consider(std::move(plan), forms);
    }
  }
  if (best) {
    note_small(*best);
  }
  return best;
}

std::optional<FormPlan> FormPlanner::alone(uint8_t form, int64_t bytes) {
  const auto choices =
      std::find_if(choices_.begin(), choices_.end(), [&](const FormChoices& of) { return of.form == form; });
  if (choices == choices_.end()) {
    return std::nullopt;
  }
  const Ops& may = choices->may;
  std::optional<FormPlan> best;
  for (const int64_t part : kWindowsAlone) {
    size_t low = 0, high = may.size() + 1;  // how many are held in the form
    while (low < high) {
      const size_t middle = (low + high) / 2;
      InForms held(graph_.ops.size(), Keep::kNothing);
      for (size_t i = 0; i < std::min(middle, may.size()); ++i) {
        held[may[i]] = keep_in(form);
      }
      FormPlan plan = as_plan(std::vector<Keep>(graph_.ops.size(), Keep::kWanted), held, window_of(part, bytes));
      const bool fits = plan.keep.outcome.total_bytes <= bytes;
      if (fits && plan.keep.outcome.replays == 0 && is_better_than(best, plan)) {
        best = std::move(plan);
      }
      (fits ? high : low) = fits ? middle : middle + 1;
    }
    if (!choices->is_behind_copies) {
      break;
    }
  }
  return best;
}

// --- the smallest plan -----------------------------------------------------------------------------------------------

void FormPlanner::note_small(const FormPlan& plan) {
  if (!smallest_ || plan.keep.outcome.total_bytes < smallest_->keep.outcome.total_bytes) {
    smallest_ = plan;
  }
}

void FormPlanner::find_smallest(const FormChoices& choices, const KeepPlan& without_forms) {
  // A copied value takes no room where no copy is ahead of its use.
  InForms copied(graph_.ops.size(), Keep::kNothing);
  for (const FormChoices& others : choices_) {
    for (const uint32_t op : others.may) {
      copied[op] = others.is_behind_copies ? keep_in(others.form) : copied[op];
    }
  }
  const auto note = [&](const InForms& held, bool thoroughly) {
    const StepGraph rest = without(held);
    Planner planner(rest);
    note_small(as_plan((thoroughly ? planner.smallest() : planner.sketch_smallest()).kept, held, 0));
  };
  if (choices.is_behind_copies) {
    note(copied, /*thoroughly=*/true);
    return;
  }
  std::vector<Ops> tried;
  for (const size_t distance : kDistances) {
    Ops& held = tried.emplace_back();
    for (size_t i = 0; i < choices.may.size(); i += distance) {
      held.push_back(choices.may[i]);
    }
  }
  for (const double share : kDearestShares) {
    tried.push_back(first_share(choices.freed, dearest_first(graph_, choices.freed, choices.may), share));
  }
  Ops& kept = tried.emplace_back();
  std::copy_if(choices.may.begin(), choices.may.end(), std::back_inserter(kept),
               [&](uint32_t op) { return is_kept(without_forms, op); });
  const InForms none(graph_.ops.size(), Keep::kNothing);
  for (const InForms& base : copied == none ? std::vector<InForms>{none} : std::vector<InForms>{none, copied}) {
    for (const Ops& ops : tried) {
      InForms held = base;
      for (const uint32_t op : ops) {
        held[op] = is_in_a_form(held[op]) ? held[op] : keep_in(choices.form);
      }
      if (!ops.empty()) {
        note(held, /*thoroughly=*/false);
      }
    }
  }
}

const FormPlan& FormPlanner::smallest() {
  if (!std::exchange(smallest_found_, true)) {
    const KeepPlan without_forms = planner_.smallest();
    note_small({without_forms, {bytes_per_cost_, 0, 0}});
    for (const FormChoices& choices : choices_) {
      find_smallest(choices, without_forms);
    }
  }
  return *smallest_;
}

}  // namespace ac2::internal
