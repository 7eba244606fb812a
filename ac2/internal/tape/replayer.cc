#include "ac2/internal/tape/replayer.h"

#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ac2/internal/libtorch/storage_copy.h"
#include "ac2/internal/libtorch/stream_order.h"
#include "ac2/internal/tape/budget.h"
#include "ac2/internal/tape/kept_results.h"
#include "ac2/internal/tape/packing.h"
#include "ac2/internal/tape/replay_call.h"
#include "ac2/internal/tape/timeline.h"
#include "ac2/internal/tape/verifier.h"

namespace ac2::internal {

namespace {

bool at_hand(Tape& tape, Value* value) {
  return value->is_opaque() || tape.available(value) != nullptr;
}

// Whoever is about to use the value's bytes does so on the current stream. Users on several streams are put in a row:
// the last may be an op that writes there. Needs the tape's lock.
void order_use_of(Value& value, const c10::Storage& bytes) {
  if (value.stream != kNoStream) {
    value.stream = order_use(bytes, value.stream);
  }
}

at::Tensor tensor_of(Tape& tape, Value* value, const TensorMeta* meta) {
  if (value->is_opaque()) {
    TORCH_CHECK(!value->changed_outside(),
                "one of the variables needed for gradient computation has been modified by an inplace operation: a ",
                value->other->opaque.toString(), " is at version ", value->version.current_version(),
                "; expected version ", value->noted_version, " instead. Write to a clone() of it, or after backward.");
    return value->other->opaque;
  }
  const c10::Storage* storage = tape.available(value);
  order_use_of(*value, *storage);
  if (value->replayed.defined() && meta->describes(*value->replayed.unsafeGetTensorImpl())) {
    return value->replayed;
  }
  TORCH_CHECK(
      storage->nbytes() >= meta->needed_bytes(),
      "one of the variables needed for gradient computation has been modified by an inplace operation: its storage "
      "was resized to ",
      storage->nbytes(), " bytes; expected at least ", meta->needed_bytes(), ".");
  return meta->over(*storage);
}

// The private storages that a replayed op writes into.
struct PrivateWrites {
  std::vector<c10::Storage> storages;
  std::vector<Value*> taken;  // whose replayed bytes are being overwritten
};

// Whether the replay may write into the replayed bytes themselves: nobody else waits for them.
bool may_take(const Node& node, const Value& old) {
  const auto own_pins = std::count_if(node.inputs.begin(), node.inputs.end(),
                                      [&old](const NodeInput& input) { return input.value == &old; });
  // What unpack returned may be the very tensor that pack did.
  return !old.held && old.real && !old.real_is_original && !old.has_hooks() && old.pins == own_pins;
}

PrivateWrites prepare_writes(Tape& tape, Node* node) {
  PrivateWrites writes;
  if (node->writes().empty()) {
    return writes;
  }
  std::vector<c10::Storage> sources(node->writes().size());
  writes.storages.resize(node->writes().size());
  {
    const Tape::Lock lock(tape);
    for (size_t i = 0; i < node->writes().size(); ++i) {
      Value* old = node->writes()[i].old;
      if (old == nullptr) {
        continue;
      }
      order_use_of(*old, *tape.available(old));
      if (may_take(*node, *old)) {
        writes.storages[i] = tape.take_real(old);
        writes.taken.push_back(old);
      } else {
        sources[i] = *tape.available(old);
        keep_until_read(sources[i]);
      }
    }
  }
  for (size_t i = 0; i < node->writes().size(); ++i) {
    if (!writes.storages[i]) {
      writes.storages[i] = sources[i] ? copy_storage(sources[i], node->writes()[i].nbytes)
                                      : allocate_storage(node->writes()[i].nbytes, node->writes()[i].device);
    }
  }
  return writes;
}

using Storages = c10::SmallVector<c10::Storage, 2>;

// What the replay made of each output that is waited for. Needs the tape's lock.
Storages wanted_storages(Tape& tape, const Node& node, const PrivateWrites& writes, const ReplayTensors& results) {
  Storages storages(node.outputs.size());
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const NodeOutput& output = node.outputs[i];
    Value* value = output.value;
    if (value == nullptr || value->pins == 0 || value->saved || tape.available(value) != nullptr) {
      continue;
    }
    storages[i] = output.write >= 0 ? writes.storages[output.write] : results.at(output.flat_result).storage();
    TORCH_CHECK(storages[i].nbytes() == value->nbytes, "Replaying ", node.facts->name, " (op ", node.index,
                " of its region) gave a result of ", storages[i].nbytes(), " bytes where forward had ", value->nbytes,
                ". An op that is recomputed must do the same for the same inputs; save its result "
                "(ac2::policies::save_ops or tag_with_policy).");
  }
  return storages;
}

// Needs the tape's lock.
void publish(Tape& tape, Node* node, const Storages& storages, const ReplayTensors& results) {
  ++tape.recomputed_ops;
  ++node->replays;
  for (size_t i = 0; i < storages.size(); ++i) {
    const NodeOutput& output = node->outputs[i];
    // It may have been let go of meanwhile.
    if (storages[i] && output.value != nullptr && output.value->pins > 0) {
      tape.set_real(output.value, storages[i], output.write >= 0 ? at::Tensor() : results.at(output.flat_result));
    }
  }
  tape.realized(node);
  keep_results_instead_of_inputs(tape, node);
}

// Before what the op takes and makes stands side by side.
void make_room_for_results(Tape& tape, const Node& node) {
  Budget* budget = tape.budget();
  if (budget == nullptr) {
    return;
  }
  int64_t bytes = 0;
  {
    const Tape::Lock lock(tape);
    for (const NodeOutput& output : node.outputs) {
      bytes += output.value != nullptr ? static_cast<int64_t>(output.value->nbytes) : 0;
    }
    for (const NodeWrite& write : node.writes()) {
      bytes -= write.old != nullptr && may_take(node, *write.old) ? static_cast<int64_t>(write.old->nbytes) : 0;
    }
  }
  budget->make_room(bytes, [&] { return "the replay of " + node.facts->name; });
}

void after_replay(Tape& tape, const Node& node) {
  Budget* budget = tape.budget();
  if (budget == nullptr) {
    return;
  }
  {
    const Tape::Lock lock(tape);
    budget->replayed(node);
    for (const NodeInput& input : node.inputs) {
      if (input.value != nullptr) {
        budget->used(*input.value);
      }
    }
  }
  budget->drop_unneeded();
}

ReplayTensors replay_call(Tape& tape, const Node& node, ReplayTensors inputs) {
  Budget* budget = tape.budget();
  // A second try would need the inputs once more; without one they need not be copied.
  if (budget == nullptr || !node.writes().empty()) {
    return call_again(node, std::move(inputs));
  }
  return call_with_room(budget, [&] { return call_again(node, inputs); });
}

// That of the first tensor on a device that has streams. Kernels of LibTorch's set it themselves; those of others rely
// on what is current.
std::optional<c10::Device> device_of(const Node& node) {
  for (const NodeInput& input : node.inputs) {
    if (input.meta != nullptr && is_asynchronous(input.meta->device())) {
      return input.meta->device();
    }
  }
  return std::nullopt;
}

// What the op reads is memory of whatever stream forward ran it on. The program may have told no allocator that this
// one reads too: it did not.
void keep_inputs_until_read(const ReplayTensors& inputs) {
  for (const at::Tensor& input : inputs) {
    if (input.defined() && is_asynchronous(input.device()) && has_plain_storage(*input.unsafeGetTensorImpl())) {
      keep_until_read(input.storage());
    }
  }
}

void replay(Tape& tape, Node* node) {
  make_room_for_results(tape, *node);
  const std::optional<c10::Device> device = device_of(*node);
  if (device) {
    follow_current_device(*device);
  }
  const c10::OptionalDeviceGuard on_device(device);
  const PrivateWrites writes = prepare_writes(tape, node);
  ReplayTensors results;
  try {
    ReplayTensors inputs;
    inputs.reserve(node->inputs.size());
    {
      const Tape::Lock lock(tape);
      for (const NodeInput& input : node->inputs) {
        inputs.push_back(input.write >= 0 ? input.meta->over(writes.storages[input.write])
                                          : tensor_of(tape, input.value, input.meta));
      }
    }
    keep_inputs_until_read(inputs);
    std::optional<TimedReplay> timed;
    if (tape.timeline() != nullptr) {
      timed.emplace(tape, *node);
    }
    results = replay_call(tape, *node, std::move(inputs));
    if (timed) {
      timed->ran();
    }
    if (tape.verifier() != nullptr) {
      Storages storages;
      {
        const Tape::Lock lock(tape);
        storages = wanted_storages(tape, *node, writes, results);
      }
      check_replay(tape, *node, storages);
    }
    const Tape::Lock lock(tape);
    publish(tape, node, wanted_storages(tape, *node, writes, results), results);
  } catch (...) {
    const Tape::Lock lock(tape);
    for (Value* value : writes.taken) {
      tape.need_again(value);
    }
    throw;
  }
  after_replay(tape, *node);
}

using Values = c10::SmallVector<Value*, 8>;

// Those that are not at hand. Needs the tape's lock.
Values missing_inputs(Tape& tape, const Node* node) {
  Values missing;
  if (node != nullptr) {
    for (const NodeInput& input : node->inputs) {
      if (input.value != nullptr && !at_hand(tape, input.value)) {
        missing.push_back(input.value);
      }
    }
  }
  return missing;
}

// A value without bytes, and, once its inputs are being gathered under a budget, what keeps those that are there
// already.
struct Missing {
  Value* value;
  std::optional<BudgetPins> inputs;
};

// Depth first over what is missing, with a stack of our own: a chain may be a million ops long.
void realize(Tape& tape, Value* target) {
  if (Budget* budget = tape.budget()) {
    bool missing = false;
    {
      const Tape::Lock lock(tape);
      missing = !at_hand(tape, target);
    }
    if (missing) {
      budget->start_tracking();  // before anything is pinned
    }
  }
  c10::SmallVector<Missing, 4> missing;
  missing.push_back({target, std::nullopt});
  Values inputs;
  while (!missing.empty()) {
    Value* value = missing.back().value;
    Node* node = nullptr;
    bool unpack = false;
    {
      const Tape::Lock lock(tape);
      if (!at_hand(tape, value)) {
        unpack = value->is_packed();
        if (value->is_offloaded()) {
          tape.check_offloaded(*value);
        }
        node = unpack ? nullptr : value->producer;
      }
      inputs = missing_inputs(tape, node);
    }
    if (unpack) {
      c10::Storage storage = unpack_value(*value);
      if (tape.verifier() != nullptr) {
        check_unpacked(tape, *value, storage);
      }
      const Tape::Lock lock(tape);
      tape.set_real(value, std::move(storage), at::Tensor());
      continue;
    }
    if (node == nullptr) {
      missing.pop_back();
      continue;
    }
    if (tape.budget() != nullptr && !missing.back().inputs) {
      missing.back().inputs.emplace(tape, *node);
      const Tape::Lock lock(tape);
      inputs = missing_inputs(tape, node);  // until now they could be dropped
    }
    if (inputs.empty()) {
      replay(tape, node);
    }
    for (Value* input : inputs) {
      missing.push_back({input, std::nullopt});
    }
  }
}

// Nobody comes for it once more: the graph is freed as it is walked, and the hook that takes it out now is all that
// wants it.
bool is_taken_for_good(const Value& value) {
  return !torch::autograd::get_current_graph_task_keep_graph() && value.uses == 1 && value.hooks == 1 &&
         value.pins == 1;
}

}  // namespace

at::Tensor tensor_at_hand(Tape& tape, Value* value, const TensorMeta* meta) {
  return at_hand(tape, value) && !is_clobbered(*value) ? tensor_of(tape, value, meta) : at::Tensor();
}

at::Tensor materialize(Tape& tape, Value* value, const TensorMeta* meta) {
  const BudgetPins handing_over(tape, value);
  realize(tape, value);
  at::Tensor tensor;
  bool copies = false;
  {
    const Tape::Lock lock(tape);
    tensor = tensor_of(tape, value, meta);
    copies = is_clobbered(*value) && (value->is_offloaded() || !is_taken_for_good(*value));
  }
  if (copies) {
    tensor = meta->over(copy_storage(tensor.storage(), tensor.storage().nbytes()));
  }
  return tensor;
}

}  // namespace ac2::internal
