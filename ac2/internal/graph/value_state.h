// The state of a value: three questions, each with an enum for its answer.
//
//   Decided   whether to save, recompute or keep the value once forward has computed it
//   Held      how the tape holds its bytes for backward
//   There     which bytes are there for the backwards under way
//
// Held and There change together or alone, by one of the StateChanges. kStateTable says which change is possible where,
// and what it leads to. ValueBytes makes the changes; nothing else does.
//
// A value with a packed form has two more answers: FormReason says why it has the form, and FormState what there is of
// it. A FormChange changes the latter, by kFormTable, and ValueBytes makes these changes too. kHoldAlone is part of the
// StateChange kHoldPacked. kThrowAway is part of kHoldCopy and kDropHeld where there is something to throw away. The
// other FormChanges change nothing of what is held.
//
// Example:
//   if (std::optional<ValueState> next = state_after(value.state(), StateChange::kHoldCopy)) …
#pragma once

#include <c10/macros/Macros.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace ac2::internal {

// Decided by the policy that was asked about the op, by a name, by a tag, or because nothing else is possible. A value
// remembers of these only whether a tag decided (Value::is_tagged()): later names and tags ask for nothing else.
enum class Decided : uint8_t {
  kSave,
  kRecompute,
  kKeep,  // under a budget: not saved, but held while hooks want it and the budget allows
};

enum class Held : uint8_t {
  kNot,
  kByReference,  // where forward computed it
  kAsCopy,       // a copy of the tape's own
  kReplayed,     // the bytes that a replay made take the place of those that it needed
  kPacked,       // as SaveWithHooks or offloading made it
  kWhole,        // a tensor without plain storage, itself or by its parts
};
inline constexpr size_t kHeldStates = 6;

enum class There : uint8_t {
  kNothing,
  kOriginal,  // the bytes that forward computed, still there and unchanged
  kReplayed,  // the bytes that a replay, an unpack function or a copy of the original made
};
inline constexpr size_t kThereStates = 3;

struct ValueState {
  Held held = Held::kNot;
  There there = There::kNothing;

  bool operator==(const ValueState&) const = default;
};

enum class StateChange : uint8_t {
  kHold,
  kHoldCopy,
  kHoldReplayed,
  kHoldPacked,
  kHoldWhole,
  kDropHeld,
  kTakeOriginal,
  kTakeReplayed,
  kDropThere,
};
inline constexpr size_t kStateChanges = 9;

// A set of Helds, or of Theres.
template <class... Enums>
constexpr uint8_t set_of(Enums... members) {
  return static_cast<uint8_t>(((1U << static_cast<unsigned>(members)) | ...));
}
template <class Enum>
constexpr bool contains(uint8_t set, Enum member) {
  return (set >> static_cast<unsigned>(member) & 1U) != 0;
}

// A change is possible if both parts of the state are in its sets. A part that has no `to` stays as it is.
struct StateRow {
  StateChange change;
  uint8_t from_held;
  uint8_t from_there;
  std::optional<Held> to_held;
  std::optional<There> to_there;
};

inline constexpr uint8_t kAnyHeld = (1U << kHeldStates) - 1;
inline constexpr uint8_t kAnyThere = (1U << kThereStates) - 1;
inline constexpr uint8_t kInAStorage = set_of(Held::kByReference, Held::kAsCopy, Held::kReplayed);

// The rows are in the order of StateChange.
inline constexpr std::array<StateRow, kStateChanges> kStateTable = {{
    {StateChange::kHold, set_of(Held::kNot), kAnyThere, Held::kByReference, {}},
    // The copy is made without the lock: the value may have been dropped or packed meanwhile.
    {StateChange::kHoldCopy, kAnyHeld & ~set_of(Held::kWhole), kAnyThere, Held::kAsCopy, {}},
    {StateChange::kHoldReplayed, set_of(Held::kNot), set_of(There::kReplayed), Held::kReplayed, There::kNothing},
    {StateChange::kHoldPacked, kInAStorage, kAnyThere, Held::kPacked, {}},
    {StateChange::kHoldWhole, set_of(Held::kNot, Held::kWhole), set_of(There::kNothing), Held::kWhole, {}},
    {StateChange::kDropHeld, kAnyHeld & ~set_of(Held::kNot), kAnyThere, Held::kNot, {}},
    {StateChange::kTakeOriginal, kAnyHeld, set_of(There::kNothing), {}, There::kOriginal},
    {StateChange::kTakeReplayed, kAnyHeld & ~set_of(Held::kWhole), kAnyThere, {}, There::kReplayed},
    {StateChange::kDropThere, kAnyHeld, set_of(There::kOriginal, There::kReplayed), {}, There::kNothing},
}};

// Nothing if the change is not possible in `state`.
C10_ALWAYS_INLINE constexpr std::optional<ValueState> state_after(ValueState state, StateChange change) {
  const StateRow& row = kStateTable[static_cast<size_t>(change)];
  if (!contains(row.from_held, state.held) || !contains(row.from_there, state.there)) {
    return std::nullopt;
  }
  return ValueState{row.to_held.value_or(state.held), row.to_there.value_or(state.there)};
}

// The states in which a change may begin, or to which it may lead. The set of a part that the change is not about is
// empty.
struct StateSets {
  uint8_t held = 0;
  uint8_t there = 0;
};
constexpr StateSets states_before(StateChange change) {
  const StateRow& row = kStateTable[static_cast<size_t>(change)];
  return {row.to_held ? row.from_held : uint8_t{0}, row.to_there ? row.from_there : uint8_t{0}};
}
constexpr StateSets states_after(StateChange change) {
  const StateRow& row = kStateTable[static_cast<size_t>(change)];
  return {row.to_held ? set_of(*row.to_held) : uint8_t{0}, row.to_there ? set_of(*row.to_there) : uint8_t{0}};
}

// Which part of the state a change is about.
constexpr bool changes_held(StateChange change) {
  return kStateTable[static_cast<size_t>(change)].to_held.has_value();
}
constexpr bool changes_there(StateChange change) {
  return kStateTable[static_cast<size_t>(change)].to_there.has_value();
}

// Why a value has a packed form, from the form's beginning to its end.
enum class FormReason : uint8_t {
  kPolicy,      // a policy or a tag says that the value is saved in the form
  kOffload,     // a policy, a tag or an option says that the value is saved in the host's memory
  kRoom,        // forms are offered for a value that is kept, for where the budget has no room for it
  kRoomOnHost,  // a value that is kept has been copied to the host, for where the budget has no room for it
};
inline constexpr size_t kFormReasons = 4;

// How much of a packed form there is.
enum class FormState : uint8_t {
  kNotMade,    // nothing: it is to be made when the value is held, is only offered, or was thrown away
  kBeingMade,  // nothing yet: the pack function runs, without the tape's lock
  kBeside,     // a copy on the host, beside the storage that is held
  kAlone,      // all that is held: Held::kPacked
};
inline constexpr size_t kFormStates = 4;

enum class FormChange : uint8_t {
  kBeginPacking,
  kEndPacking,  // the function has returned, or thrown; what it returned is not held yet
  kPutBeside,
  kHoldAlone,
  kThrowAway,
};
inline constexpr size_t kFormChanges = 5;

// A change is possible if the state and the reason are in its sets.
struct FormRow {
  FormChange change;
  uint8_t from;
  uint8_t reasons;
  FormState to;
};

inline constexpr uint8_t kAnyReason = (1U << kFormReasons) - 1;
inline constexpr uint8_t kToBeSaved = set_of(FormReason::kPolicy, FormReason::kOffload);
inline constexpr uint8_t kForRoom = set_of(FormReason::kRoom, FormReason::kRoomOnHost);
inline constexpr uint8_t kOnHost = set_of(FormReason::kOffload, FormReason::kRoomOnHost);

// The rows are in the order of FormChange.
inline constexpr std::array<FormRow, kFormChanges> kFormTable = {{
    // Tape::pack_for_room() packs without these two, and sees afterwards whether the value is as it was.
    {FormChange::kBeginPacking, set_of(FormState::kNotMade), kToBeSaved, FormState::kBeingMade},
    {FormChange::kEndPacking, set_of(FormState::kBeingMade), kToBeSaved, FormState::kNotMade},
    {FormChange::kPutBeside, set_of(FormState::kNotMade), set_of(FormReason::kRoomOnHost), FormState::kBeside},
    {FormChange::kHoldAlone, set_of(FormState::kNotMade, FormState::kBeside), kAnyReason, FormState::kAlone},
    {FormChange::kThrowAway, set_of(FormState::kBeside, FormState::kAlone), kAnyReason, FormState::kNotMade},
}};

// Nothing if the change is not possible in `state`, or for `reason`.
constexpr std::optional<FormState> form_state_after(FormState state, FormReason reason, FormChange change) {
  const FormRow& row = kFormTable[static_cast<size_t>(change)];
  return contains(row.from, state) && contains(row.reasons, reason) ? std::optional(row.to) : std::nullopt;
}

}  // namespace ac2::internal
