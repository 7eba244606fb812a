// Writing a call that has run into the tape.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/ivalue.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>

#include "ac2/internal/libtorch/op_environment.h"
#include "ac2/internal/operators/op_facts.h"
#include "ac2/internal/record/foreign_reads.h"
#include "ac2/internal/record/outlook.h"
#include "ac2/internal/record/overwrite.h"
#include "ac2/internal/region/policy_stack.h"
#include "ac2/internal/tape/locked_tape.h"

namespace ac2::internal {

// A call as it is being recorded. Facts that are not known before the op runs are filled in as they become known.
struct RecordedCall {
  // A constructor, because the compiler would fill an aggregate with zeros before it sets the members.
  RecordedCall(const OpFacts& facts, c10::DispatchKeySet keys, int64_t index, c10::ArrayRef<c10::IValue> arguments)
      : facts(facts), keys(keys), index(index), arguments(arguments) {}

  const OpFacts& facts;
  c10::DispatchKeySet keys;  // those below kRecordKey
  int64_t index;
  c10::ArrayRef<c10::IValue> arguments;
  Outlook outlook;
  const Overwrites* writes = nullptr;  // null if it writes nothing

  // Null if the op has not drawn; empty if it has, and nobody knows the states that it drew from.
  const Draws* draws = nullptr;

  // Known when the op has run.
  OpEnvironment environment;
  c10::ArrayRef<c10::IValue> results;
  // Results that have an idle object in Python: is_used_by_idle_python_object().
  c10::ArrayRef<const c10::TensorImpl*> idle_in_python;
  double cost = 0;                              // if the tape has a budget or a step log
  const ForeignReads* foreign_reads = nullptr;  // null until build_node() has said that it takes one
};

// The node lives on in its results; nothing is left if it has none. False, and nothing has been built, if the call may
// have to be replayed and has read from foreign memory, and nobody has seen to what it has read there.
bool build_node(LockedTape& tape, const RecordedCall& call, const ResolvedDecision& decision);

}  // namespace ac2::internal
