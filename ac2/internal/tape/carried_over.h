// Finds the state that is carried over through a loop in which graphs overlap.
//
// There some graph always wants the states before the one that is carried over, and behind those lies all that was ever
// carried over: nodes of which no graph wants anything any more, but which would be needed to replay what a graph does
// want. A stretch is such a part of a chain, between two values that hooks want, or from one of them on. In a single
// forward, however long, hooks want something every few ops, and stretches are short.
//
// Only programs in which one graph always begins before the last one ends need this, such as a queue of losses that
// wait while the state goes on: a region around such a loop would keep the nodes of every round (LastingRegionTest has
// the loops).
//
// Threads: guarded by the tape's lock.
#pragma once

#include <c10/util/FunctionRef.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ac2/internal/graph/node.h"
#include "ac2/internal/tape/storage_index.h"

namespace ac2::internal {

// A stretch is long if it has more than `length` nodes in a row, and if it began more than `nodes` nodes before its end
// (of those that are still there), or if more than `bytes` bytes are held along it for replays alone.
struct LongStretch {
  size_t length;
  size_t nodes;
  int64_t bytes;
};

// Bytes that are there for replays alone.
int64_t bytes_of_our_own(const Value& value);

// Of the living values for which `condition` holds, those whose producers have a long stretch somewhere before them,
// behind a value that a hook wants. If a value's only way to the stretch leads through an older such value, only the
// older one is returned. The oldest value comes first.
//
// Of the nodes behind living values, those that will have a long stretch before them when the values found are cut off
// get Node::reaches_far_back; the others lose it. The cost is a constant for each node. Nothing recurses.
std::vector<Value*> carried_over(const StorageIndex& storages, const LongStretch& limits,
                                 c10::function_ref<bool(const Value&)> condition);

}  // namespace ac2::internal
