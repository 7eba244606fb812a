// Runs the pack and unpack functions of a SaveWithHooks, with no lock held and no region open.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstdint>

#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

// `values` come from ValueBytes::take_pending_packs(), which gave the caller a reference to each. The references end
// here. If a pack throws, that value and the ones after it stay held by reference, and the exception goes on.
void pack_values(Tape& tape, const c10::SmallVector<Value*, 2>& values);

// The storage of a packed and pinned value, in the layout that pack saw.
c10::Storage unpack_value(const Value& value);

// Whether the bytes of a value that is not at hand come back by unpacking, not by a replay. With the tape's lock.
// Throws if the value was offloaded and has been changed since.
bool must_unpack(const Value& value);
// Without the lock: the value is at hand afterwards. If the value counts for a budget, the budget makes room first.
// `enough_budget` is the size of a budget that would have had room, for the error's text.
void unpack_again(Tape& tape, Value* value, int64_t enough_budget);
// The same; false if the budget has no room.
bool unpack_if_there_is_room(Tape& tape, Value* value);

}  // namespace ac2::internal
