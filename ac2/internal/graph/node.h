// Nodes: the recorded calls of ops, which computed the values of a trace.
//
//   hook ──► Value ──► producer Node ──► input Values ──► …
//
// References go backwards only, from results to what they were computed from, so a part of the graph dies with the last
// hook and the last live tensor that could need it.
//
// Threads: guarded by the tape's lock. Counts are plain integers.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "ac2/internal/graph/value.h"
#include "ac2/internal/libtorch/op_environment.h"
#include "ac2/internal/libtorch/random_state.h"
#include "ac2/internal/libtorch/tensor_meta.h"
#include "ac2/internal/operators/op_facts.h"
#include "ac2/policy.h"

namespace ac2::internal {

struct NodeInput {
  Value* value = nullptr;            // owned; null where the op does not look at the old bytes (see NodeWrite)
  const TensorMeta* meta = nullptr;  // null for tensors without plain storage
  uint16_t argument = 0;
  int16_t write = -1;              // in Node::writes, if the op writes into this storage
  int32_t list_index : 31 = -1;    // within a list argument
  uint32_t requires_grad : 1 = 0;  // where the op may look at that
  uint32_t sample = 0;             // read_sample(), where replays read these bytes
};
static_assert(sizeof(NodeInput) == 32);

// A storage that the op writes into. A replay gives the op a private storage.
struct NodeWrite {
  Value* old = nullptr;  // that of the inputs; null if whatever stood there makes no difference
  size_t nbytes = 0;
  c10::Device device = c10::kCPU;
};

struct NodeOutput {
  Value* value = nullptr;    // not owned; null once dead
  int32_t flat_result = -1;  // among all result tensors in order, or
  int16_t write = -1;        // in Node::writes
};

struct ListArgument {
  uint16_t argument = 0;
  bool optional_elements = false;
  int32_t size = 0;
};

// Data that few calls have.
struct NodeExtras {
  c10::SmallVector<ListArgument, 1> lists;
  c10::SmallVector<NodeWrite, 1> writes;
  Draws draws;  // empty if the op does not draw
};

// A call of an op.
struct Node {
  const OpFacts* facts = nullptr;
  c10::DispatchKeySet keys;                    // of the call below kRecordKey
  const OpEnvironment* environment = nullptr;  // the tape's
  int64_t index = 0;
  // The arguments in their order: `inputs` are those that are tensors, alone or in a list; `constants` are the others.
  c10::SmallVector<NodeInput, 2> inputs;
  c10::SmallVector<c10::IValue, 1> constants;
  c10::SmallVector<NodeOutput, 1> outputs;
  std::unique_ptr<NodeExtras> extras;  // null if it has none
  CheckpointPolicy decision = CheckpointPolicy::PREFER_SAVE;
  bool replayable = true;
  // Replays of it may go far back, behind values that graphs want. Only looks for such values set it (Anchors).
  bool reaches_far_back = false;
  // A replay of it, with what has to be replayed before it, may compute other bits than forward did.
  bool may_vary = false;
  // Ranks that should agree on its results have recorded different things, so that a replay might wait for ever.
  bool ranks_differ = false;

  int32_t live_outputs = 0;        // the node is freed with the last
  int32_t recomputed_outputs = 0;  // live and not saved; while there is one, the node uses its inputs
  int32_t waiting_outputs = 0;     // that wait for a replay; while there is one, the node pins its inputs
  uint32_t replays = 0;
  NodeId budget_node = kNoId;
  float cost = 0;  // under a budget: of running it, in any unit
  Node* next_dead = nullptr;

  c10::ArrayRef<ListArgument> lists() const { return extras ? extras->lists : c10::ArrayRef<ListArgument>(); }
  c10::ArrayRef<NodeWrite> writes() const { return extras ? extras->writes : c10::ArrayRef<NodeWrite>(); }
  NodeExtras& add_extras() {
    if (!extras) {
      extras = std::make_unique<NodeExtras>();
    }
    return *extras;
  }
};

// "aten::mul.Tensor (op 7 of its region)"
std::string describe(const Node& node);

// A backward kernel writes into it.
inline bool is_clobbered(const Value& value) {
  if (value.producer() == nullptr) {
    return false;
  }
  const auto& clobbers = value.producer()->facts->clobbered_results;
  return std::find(clobbers.begin(), clobbers.end(), value.producer()->outputs[value.slot()].flat_result) !=
         clobbers.end();
}

}  // namespace ac2::internal
