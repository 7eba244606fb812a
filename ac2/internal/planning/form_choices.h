// The choices for each form: the ops of a step whose results the form may hold, and those of them for which that pays.
//
//   for (const FormChoices& choices : form_choices(graph, uses, bytes_per_cost)) …
//
// A form that is copied to pays for an op whose results can be there and back before they are used. Any other form
// pays where packing and unpacking costs less, for the bytes that the form frees, than the op itself.
#pragma once

#include <cstdint>
#include <vector>

#include "ac2/internal/planning/keep.h"
#include "ac2/internal/planning/step_graph.h"
#include "ac2/internal/planning/step_uses.h"

namespace ac2::internal {

struct FormChoices {
  using Ops = std::vector<uint32_t>;

  uint8_t form = 0;
  bool is_behind_copies = false;
  std::vector<int64_t> freed;  // by op: the bytes that the form frees of its results
  Ops may = {};                // ops of which the form frees bytes, in the order of the program
  Ops worthwhile = {};         // of these, those for which the form pays
  int64_t largest = 0;         // the bytes of the largest value that may be copied

  // Orders in which a search holds more and more of `worthwhile` in the form. `kept`: what a plan without forms keeps.
  std::vector<Ops> orders(const StepGraph& graph, const std::vector<Keep>& kept) const;
};

// Of the forms that may hold something. `bytes_per_cost`: the speed of copies each way.
std::vector<FormChoices> form_choices(const StepGraph& graph, const StepUses& uses, double bytes_per_cost);

}  // namespace ac2::internal
