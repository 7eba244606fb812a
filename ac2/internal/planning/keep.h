// A Keep says what a plan does with the results of an op: nothing, keep them as they are, or hold them in a form.
#pragma once

#include <cstdint>

namespace ac2::internal {

// The choice for the results of one op. Beside the three that have a name there is one for each of StepGraph::forms,
// which keep_in() returns.
enum class Keep : uint8_t {
  kNothing,  // all are computed again
  kWanted,   // those that hooks want are kept for as long as hooks want them
  kAll,      // in addition, those that only replays take are kept while ops that take them may have to be replayed
  kInFirstForm,
};

// As kAll, but those that may be held in the form are, and are unpacked for each use.
constexpr Keep keep_in(uint8_t form) {
  return static_cast<Keep>(static_cast<uint8_t>(Keep::kInFirstForm) + form);
}
constexpr bool is_in_a_form(Keep keep) {
  return keep >= Keep::kInFirstForm;
}
// Of a choice that is_in_a_form().
constexpr uint8_t form_of(Keep keep) {
  return static_cast<uint8_t>(static_cast<uint8_t>(keep) - static_cast<uint8_t>(Keep::kInFirstForm));
}

// Whether results are held for replays that take them, too.
constexpr bool is_saved_for_replays(Keep keep) {
  return keep == Keep::kAll || is_in_a_form(keep);
}

}  // namespace ac2::internal
