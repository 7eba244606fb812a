// What the trace is made of: values (one version of one storage) and the op nodes that computed them.
//
//   hook ──► Value ──► producer Node ──► input Values ──► …
//
// References go backwards only, from results to what they were computed from, so a part of the graph dies when the last
// hook and the last live tensor that could need it die. Counts are plain integers: Tape guards all of it with one
// mutex.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "ac2/internal/eviction/evictor_ids.h"
#include "ac2/internal/libtorch/random_state.h"
#include "ac2/internal/libtorch/stream_order.h"
#include "ac2/internal/libtorch/tensor_meta.h"
#include "ac2/internal/operators/op_facts.h"
#include "ac2/policy.h"

namespace ac2::internal {

struct Node;

// How a value is kept that is not simply a storage.
struct OtherForm {
  // SaveWithHooks: the tensor that pack saw, and what it returned.
  std::shared_ptr<const SaveWithHooks> hooks;
  TensorMeta packed_meta;
  c10::IValue packed;
  int64_t packed_bytes = 0;
  bool is_packed = false;
  bool is_packing = false;
  bool is_offload = false;              // not the user's: see offloader.h
  c10::StreamId packed_on = kNoStream;  // whose work pack's was

  // A tensor without plain storage, whole. Set while the value is used.
  c10::weak_intrusive_ptr<c10::TensorImpl> opaque_origin{c10::intrusive_ptr<c10::TensorImpl>()};
  at::Tensor opaque;
};

// What a version counter stood at.
struct NotedVersion {
  c10::VariableVersion counter;
  uint32_t version = 0;
  bool noted = false;  // else `version` is yet to be set

  explicit NotedVersion(c10::VariableVersion counter) : counter(std::move(counter)) {}
  void note() {
    version = counter.current_version();
    noted = true;
  }
  bool changed() const { return noted && counter.current_version() != version; }
};

// As what a budget counts bytes, apart from those of tracked values, which count by their place.
enum class Counted : uint8_t { kNot, kUntracked, kFixed, kOutside };

// The bytes of a storage between two writes.
struct Value {
  // So that a storage of many tensors costs no more per op than one of a few.
  static constexpr size_t kMostOtherVersions = 64;
  static constexpr uint32_t kNotInMap = ~uint32_t{0};

  Node* producer = nullptr;        // owned; null for values from outside the region
  uint32_t slot = 0;               // in producer->outputs
  uint32_t map_index = kNotInMap;  // see StorageMap
  Value* next_dead = nullptr;

  int32_t refs = 0;   // the map of current versions, hooks, nodes that take it as input
  int32_t uses = 0;   // hooks, and nodes that may have to be replayed: what keeps a saved value's bytes
  int32_t hooks = 0;  // of the uses, those that are hooks
  int32_t pins = 0;   // hooks and needed nodes of the backwards under way: what keeps a replayed value's bytes

  bool saved = true;           // kept while used; otherwise replayed from its producer
  bool noted = false;          // version and noted_version are set
  bool private_bytes = false;  // held is a copy that nobody else can write to
  bool waits = false;          // pinned, and its producer must be replayed first
  bool real_is_original = false;
  bool some_unwatched = false;  // other_versions was full: a change may go unseen
  bool tagged = false;          // decided by tag_with_policy, which no name overrules
  // Under a budget only.
  bool budgeted = false;                 // the budget may drop its bytes
  bool tracked = false;                  // and its evictor knows of it
  bool keep = false;                     // not saved, but kept while hooks want it and the budget allows
  Counted held_counted = Counted::kNot;  // `held`, or what was packed
  Counted real_counted = Counted::kNot;  // `real`
  Retention retention = Retention::kPreferSave;
  ValueId budget_id = kNoId;
  uint32_t noted_version = 0;
  c10::StreamId stream = kNoStream;  // on which a replay made the bytes, or they were last used since
  size_t nbytes = 0;

  c10::weak_intrusive_ptr<c10::StorageImpl> origin;  // what forward computed
  c10::Storage held;                                 // while saved and used
  c10::Storage real;                                 // while pinned
  at::Tensor replayed;                               // over `real`, as the op returned it
  c10::VariableVersion version;
  // Of tensors that share the storage but not the counter (unsafe_chunk(), .data).
  std::unique_ptr<c10::SmallVector<NotedVersion, 2>> other_versions;
  std::unique_ptr<OtherForm> other;

  Value() : origin(c10::intrusive_ptr<c10::StorageImpl>()) {}
  explicit Value(const c10::Storage& storage)
      : nbytes(storage.unsafeGetStorageImpl()->nbytes()), origin(storage.getWeakStorageImpl()) {}

  bool is_opaque() const { return other && other->hooks == nullptr; }
  bool has_hooks() const { return other && other->hooks != nullptr; }
  bool is_packed() const { return has_hooks() && other->is_packed; }
  bool is_offloaded() const { return is_packed() && other->is_offload; }
  // By someone ac2 does not see, since the versions were noted.
  bool changed_outside() const {
    return (noted && version.enabled() && version.current_version() != noted_version) ||
           (other_versions && std::any_of(other_versions->begin(), other_versions->end(),
                                          [](const NotedVersion& other) { return other.changed(); }));
  }
};

struct NodeInput {
  Value* value = nullptr;            // owned; null where the op does not look at the old bytes (see NodeWrite)
  const TensorMeta* meta = nullptr;  // null for tensors without plain storage
  uint16_t argument = 0;
  int16_t write = -1;              // in Node::writes, if the op writes into this storage
  int32_t list_index : 31 = -1;    // within a list argument
  uint32_t requires_grad : 1 = 0;  // where the op may look at that
};
static_assert(sizeof(NodeInput) == 24);

// A storage that the op writes into. Replay gives it a private one.
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

// What few calls have.
struct NodeExtras {
  c10::SmallVector<ListArgument, 1> lists;
  c10::SmallVector<NodeWrite, 1> writes;
  RandomState random_state;  // before the op; undefined if it does not draw
};

// One call of an op.
struct Node {
  const OpFacts* facts = nullptr;
  c10::DispatchKeySet keys;                    // of the call below kRecordKey
  c10::impl::PODLocalDispatchKeySet tls_keys;  // as they were around it
  int64_t index = 0;
  // In the order of the arguments: those that are tensors, alone or in a list, and those that are not.
  c10::SmallVector<NodeInput, 2> inputs;
  c10::SmallVector<c10::IValue, 1> constants;
  c10::SmallVector<NodeOutput, 1> outputs;
  std::unique_ptr<NodeExtras> extras;  // null if it has none
  CheckpointPolicy decision = CheckpointPolicy::PREFER_SAVE;
  bool replayable = true;
  bool grad_mode = false;  // some kernels look at it (oneDNN's RNN keeps a workspace only if it is on)

  int32_t refs = 0;                // outputs alive
  int32_t recomputed_outputs = 0;  // of those, not saved; while positive the inputs are used
  int32_t needed = 0;              // outputs that wait for a replay; while positive the inputs are pinned
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

// A backward kernel writes into it.
inline bool is_clobbered(const Value& value) {
  if (value.producer == nullptr) {
    return false;
  }
  const auto& clobbers = value.producer->facts->clobbered_results;
  return std::find(clobbers.begin(), clobbers.end(), value.producer->outputs[value.slot].flat_result) != clobbers.end();
}

}  // namespace ac2::internal
