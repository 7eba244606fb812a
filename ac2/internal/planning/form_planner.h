// Chooses which results of a step to keep, which to compute again and which to hold in a form, such as in the host's
// memory or in fewer bits, within a number of bytes, so that the step takes as little time as possible.
//
//   FormPlanner forms(graph, planner, bytes_per_cost);
//   if (std::optional<FormPlan> plan = forms.solve(bytes)) {
//     … plan->keep.kept[op], which may be keep_in(form) …
//   }
//
// The time of a plan is that of its replays, of packing, of unpacking for each use, and of waiting for copies
// (copy_schedule.h has the model). The bytes of a plan count what is on its way to the host and back, as far as its
// window lets that be. The values that a form may hold are those with an entry in StepGraph::Value::forms.
//
// The search takes many sets of results to hold in a form. They are of those for which the form pays: whose copy can be
// there and back before they are used, or of which packing costs less, for the bytes that it frees, than their own op.
// The sets are more and more of those that a plan without forms keeps, of those that it computes again, of the dearest
// for their bytes, and of the first of the program. For each set the Planner chooses among the others, coarsely. A
// local search with one form improves the best plan for each form by itself; then sets of one form are added to the
// best set of another, and a local search with all forms improves the best of all these.
//
// Guaranteed: a plan takes no more time than the Planner's, than that of a FormPlanner for one of the forms, or than
// alone() for the same bytes, by the same model, and is the Planner's where no form helps; the same graph, speed and
// bytes give the same plan. Not guaranteed: the best plan. form_planner_test compares with all ways on small steps.
//
// Cost: for each form a few times that of a plan without forms, and the same for each pair of forms. Lifetime: the
// graph and the planner must outlive it. Threads: not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ac2/internal/planning/copy_schedule.h"
#include "ac2/internal/planning/form_choices.h"
#include "ac2/internal/planning/planner.h"
#include "ac2/internal/planning/step_graph.h"

namespace ac2::internal {

struct FormPlan {
  KeepPlan keep;
  CopySpeedAndWindow copies;  // with a window of 0 if nothing is copied
};

class FormPlanner {
 public:
  // `planner` is that of the graph. `bytes_per_cost`: the speed of copies each way, of a graph with a form behind them.
  FormPlanner(const StepGraph& graph, Planner& planner, double bytes_per_cost = 0);
  FormPlanner(const FormPlanner&) = delete;
  FormPlanner& operator=(const FormPlanner&) = delete;

  // As of Planner.
  std::optional<FormPlan> solve(int64_t bytes);
  const FormPlan& smallest();
  // The best plan that computes nothing again, uses no other form, and holds in this one the first results of the
  // program, as few as must be. Null if too much is held even if all that may be held in it are.
  std::optional<FormPlan> alone(uint8_t form, int64_t bytes);

 private:
  using Ops = FormChoices::Ops;
  // By op: the form in which its results are held, as Keep says it; kNothing: in none that was chosen.
  using InForms = std::vector<Keep>;

  // So small a part of what each step in flight has of the bytes, in whole numbers of the largest value, and at least
  // one of those if that leaves room.
  int64_t window_of(int64_t part, int64_t bytes) const;

  // The step that is left to plan once these results are held in their forms.
  StepGraph without(const InForms& held) const;
  FormPlan as_plan(std::vector<Keep> kept, const InForms& held, int64_t window);
  // Null if no plan within the bytes was found that holds these in forms.
  std::optional<FormPlan> plan_around(const InForms& held, int64_t window, int64_t bytes);

  struct Searched {
    InForms held;
    FormPlan plan;
  };
  // The best plan that holds results in the form beside those of `held`, before a local search. Null if none was found.
  std::optional<Searched> search(const FormChoices& choices, const InForms& held, int64_t bytes,
                                 const KeepPlan& without_forms);
  // A local search with these forms, which leaves the window as it is.
  void improve(int64_t bytes, const std::vector<const FormChoices*>& forms, FormPlan& plan);
  // The smallest plan is this one if it is smaller than those before.
  void note_small(const FormPlan& plan);
  void find_smallest(const FormChoices& choices, const KeepPlan& without_forms);

  const StepGraph& graph_;
  Planner& planner_;
  const double bytes_per_cost_;
  const std::vector<FormChoices> choices_;
  int64_t largest_ = 0;  // the bytes of the largest value that may be copied
  std::optional<FormPlan> smallest_;
  bool smallest_found_ = false;
};

}  // namespace ac2::internal
