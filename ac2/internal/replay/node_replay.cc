#include "ac2/internal/replay/node_replay.h"

#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ac2/internal/budget/call_with_room.h"
#include "ac2/internal/budget/spent_time.h"
#include "ac2/internal/libtorch/spelling.h"
#include "ac2/internal/libtorch/storage_copy.h"
#include "ac2/internal/libtorch/stream_order.h"
#include "ac2/internal/replay/gather_missing.h"
#include "ac2/internal/replay/held_results.h"
#include "ac2/internal/replay/replay_call.h"
#include "ac2/internal/replay/value_tensor.h"
#include "ac2/internal/tape/outside_writes.h"

namespace ac2::internal {

namespace {

// The private storages that a replayed op writes into.
struct PrivateWrites {
  std::vector<c10::Storage> storages;
  std::vector<Value*> taken;  // whose replayed bytes are being overwritten
};

// Whether the replay may write into the replayed bytes themselves: nobody else waits for them.
bool may_take(const Node& node, const Value& old) {
  const auto own_pins = std::count_if(node.inputs.begin(), node.inputs.end(),
                                      [&old](const NodeInput& input) { return input.value == &old; });
  return old.may_be_overwritten_in_place(own_pins);
}

PrivateWrites prepare_writes(Tape& tape, Node* node) {
  PrivateWrites writes;
  if (node->writes().empty()) {
    return writes;
  }
  std::vector<c10::Storage> sources(node->writes().size());
  writes.storages.resize(node->writes().size());
  {
    const Tape::Lock locked(tape);
    for (size_t i = 0; i < node->writes().size(); ++i) {
      Value* old = node->writes()[i].old;
      if (old == nullptr) {
        continue;
      }
      order_use_of(*old, locked->bytes().checked(*old));
      if (may_take(*node, *old)) {
        writes.storages[i] = locked->bytes().take_replayed(old);
        writes.taken.push_back(old);
      } else {
        sources[i] = locked->bytes().checked(*old);
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

// The storages that the replay made of the outputs that are waited for.
Storages wanted_storages(const Node& node, const PrivateWrites& writes, const ReplayTensors& results) {
  Storages storages(node.outputs.size());
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const NodeOutput& output = node.outputs[i];
    const Value* value = output.value;
    if (value == nullptr || !value->is_pinned() || !value->counts_on_replay() || value->is_at_hand()) {
      continue;
    }
    storages[i] = output.write >= 0 ? writes.storages[output.write] : results.at(output.flat_result).storage();
    TORCH_CHECK(storages[i].nbytes() == value->nbytes(), "Replaying ", describe(node), " gave a result of ",
                storages[i].nbytes(), " bytes where forward had ", value->nbytes(),
                ". An op that is recomputed must do the same for the same inputs; save its result (",
                spelled("ac2::policies::save_ops or tag_with_policy", "ac2.policies.save_ops or ac2.tag_with_policy"),
                ").");
  }
  return storages;
}

// Uses up what the replay made of the outputs that are waited for.
void publish(LockedTape& tape, Node* node, Storages storages, ReplayTensors& results) {
  int64_t bytes = 0;
  for (size_t i = 0; i < storages.size(); ++i) {
    const NodeOutput& output = node->outputs[i];
    // Perhaps nothing waits for the output any more.
    bytes += storages[i] ? static_cast<int64_t>(storages[i].nbytes()) : 0;
    if (storages[i] && output.value != nullptr && output.value->is_pinned()) {
      tape.bytes().set_replayed(output.value, std::move(storages[i]),
                                output.write >= 0 ? at::Tensor() : std::move(results[output.flat_result]));
    }
  }
  ++node->replays;
  tape.ledger().node_replayed(bytes);
  tape.pins().realized(node);
  hold_results_instead_of_inputs(tape, node);
}

// The bytes of the results that stand beside the op's inputs when it has run.
int64_t bytes_beside_inputs(Tape& tape, const Node& node) {
  int64_t bytes = 0;
  const Tape::Lock lock(tape);
  for (const NodeOutput& output : node.outputs) {
    bytes += output.value != nullptr ? output.value->bytes() : 0;
  }
  for (const NodeWrite& write : node.writes()) {
    bytes -= write.old != nullptr && may_take(node, *write.old) ? write.old->bytes() : 0;
  }
  return bytes;
}

void tell_budget(Tape& tape, const Node& node) {
  Budget* budget = tape.budget();
  if (budget == nullptr) {
    return;
  }
  {
    const Tape::Lock lock(tape);
    lock->budget().replayed(node);
    for (const NodeInput& input : node.inputs) {
      if (input.value != nullptr) {
        budget->held()->used(*input.value);
      }
    }
  }
  budget->backward_turn().progressed();
  budget->drop_unneeded();
}

ReplayTensors call_with_budget(Tape& tape, const Node& node, ReplayTensors& inputs) {
  Budget* budget = tape.budget();
  // A second try would need the inputs once more. Without one they need not be copied.
  if (budget == nullptr || !node.writes().empty()) {
    return call_again(node, inputs);
  }
  return call_with_room(budget, [&] {
    ReplayTensors used_up = inputs;
    return call_again(node, used_up);
  });
}

// The device of the first tensor on a device that has streams. Kernels of LibTorch set the current device themselves;
// those of others rely on it.
std::optional<c10::Device> device_of(const Node& node) {
  for (const NodeInput& input : node.inputs) {
    if (input.meta != nullptr && is_asynchronous(input.meta->device())) {
      return input.meta->device();
    }
  }
  return std::nullopt;
}

// The inputs may be memory of another stream, on which forward ran the op. This stream reads it too, and the program,
// which does not know of the replay, has not told the allocator.
void keep_inputs_until_read(const ReplayTensors& inputs) {
  for (const at::Tensor& input : inputs) {
    if (has_plain_storage(input) && is_asynchronous(input.device())) {
      keep_until_read(input.storage());
    }
  }
}

ReplayTensors gather_inputs(Tape& tape, const Node& node, const PrivateWrites& writes) {
  ReplayTensors inputs;
  inputs.reserve(node.inputs.size());
  {
    const Tape::Lock locked(tape);
    for (const NodeInput& input : node.inputs) {
      if (C10_UNLIKELY(input.value != nullptr && input.value->is_opaque())) {
        check_parts_unchanged(*input.value);
      }
      inputs.push_back(input.write >= 0 ? input.meta->over(writes.storages[input.write])
                                        : tensor_of(*locked, input.value, input.meta));
      if (input.sample != 0 && input.value->holds_bytes_of_forward()) {
        check_read_again(node, input, inputs.back());
      }
    }
  }
  keep_inputs_until_read(inputs);
  return inputs;
}

// Shows observers what the replay made before anything uses it, without the lock: a look may take ops.
void show_results(Tape& tape, const Node& node, const PrivateWrites& writes, const ReplayTensors& results,
                  const std::vector<std::unique_ptr<ReplayObservation>>& observations) {
  if (!tape.observers().any([](const Observer& observer) { return observer.checks_replays(); })) {
    return;
  }
  Storages storages;
  {
    const Tape::Lock locked(tape);
    storages = wanted_storages(node, writes, results);
  }
  for (const auto& observation : observations) {
    observation->check(storages);
  }
}

void run(Tape& tape, Node* node, const PrivateWrites& writes) {
  ReplayTensors inputs = gather_inputs(tape, *node, writes);
  const auto observations =
      tape.observers().observe<ReplayObservation>([&](Observer& observer) { return observer.observe_replay(*node); });
  ReplayTensors results = call_with_budget(tape, *node, inputs);
  for (const auto& observation : observations) {
    observation->ran();
  }
  show_results(tape, *node, writes, results, observations);
  const Tape::Lock locked(tape);
  publish(*locked, node, wanted_storages(*node, writes, results), results);
}

std::string name_of_replay(const Node& node) {
  return "the replay of " + node.facts->name;
}

void replay_in_room(Tape& tape, Node* node) {
  TORCH_CHECK(!node->ranks_differ, "Replaying ", describe(*node),
              " may communicate, and the ranks of the memory budget's group have not recorded the same for it: one has "
              "dropped its results, and another has nothing to compute again. The ranks would wait for each other for "
              "ever. Save the results of the op on all ranks (",
              spelled("tag_with_policy(tensor, MUST_SAVE)", "ac2.tag_with_policy(tensor, MUST_SAVE)"), ").");
  gather_missing(tape, *node);
  const std::optional<c10::Device> device = device_of(*node);
  if (device) {
    follow_current_device(*device);
    tape.replay_time().note_queued();
  }
  const c10::OptionalDeviceGuard on_device(device);
  const PrivateWrites writes = prepare_writes(tape, node);
  try {
    run(tape, node, writes);
  } catch (...) {
    const Tape::Lock locked(tape);
    for (Value* value : writes.taken) {
      locked->pins().need_again(value);
    }
    throw;
  }
  tell_budget(tape, *node);
}

}  // namespace

void replay(Tape& tape, Node* node, int64_t enough_budget) {
  const SpentTime::Span span(tape.replay_time());
  if (Budget* budget = tape.budget()) {
    budget->make_room_to_replay(
        bytes_beside_inputs(tape, *node), [&] { return name_of_replay(*node); }, enough_budget);
  }
  replay_in_room(tape, node);
}

bool replay_if_there_is_room(Tape& tape, Node* node) {
  const SpentTime::Span span(tape.replay_time());
  if (Budget* budget = tape.budget()) {
    if (!budget->find_room_to_replay(bytes_beside_inputs(tape, *node), [&] { return name_of_replay(*node); })) {
      return false;
    }
  }
  replay_in_room(tape, node);
  return true;
}

}  // namespace ac2::internal
