#include "ac2/internal/tape/timeline.h"

#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <chrono>
#include <exception>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ac2/internal/libtorch/for_each_tensor.h"
#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

const char* to_string(TraceLog::Change change) {
  switch (change) {
    case TraceLog::Change::HOLD:
      return "hold";
    case TraceLog::Change::RELEASE:
      return "release";
    case TraceLog::Change::REPLAY:
      return "replayed";
    case TraceLog::Change::DROP:
      return "drop";
    case TraceLog::Change::EVICT:
      return "evict";
    case TraceLog::Change::COPY:
      return "copy";
  }
  return "";
}

const char* to_string(TraceLog::Source source) {
  switch (source) {
    case TraceLog::Source::OP:
      return "op";
    case TraceLog::Source::TAG:
      return "tag";
    case TraceLog::Source::NAME:
      return "name";
  }
  return "";
}

std::string shape_of(c10::IntArrayRef sizes, c10::ScalarType type) {
  return absl::StrCat("[", absl::StrJoin(sizes, ", "), "] ", absl::AsciiStrToLower(c10::toString(type)));
}

Timeline::Timeline() {
  log_.timed = true;
  log_.begin = now();
}

int64_t Timeline::now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Timeline::add_scope(int64_t id, int64_t depth, const std::string& policy) {
  if (scope_places_.emplace(id, static_cast<int64_t>(log_.scopes.size())).second) {
    log_.scopes.push_back({depth, policy});
  }
}

int64_t Timeline::begin_op(const OpFacts& facts, int64_t index, int64_t begin) {
  TraceLog::Op& op = log_.ops.emplace_back();
  op.index = index;
  op.name = facts.name;
  op.forward.begin = begin;
  return static_cast<int64_t>(log_.ops.size()) - 1;
}

void Timeline::end_op(int64_t place, int64_t end, bool threw) {
  log_.ops[place].forward.end = end;
  log_.ops[place].threw = threw;
}

// One thread records, and begins an op with each index in turn.
int64_t Timeline::place_of_op(int64_t index) const {
  return log_.ops.empty() || index < log_.ops.front().index ? TraceLog::kNone : index - log_.ops.front().index;
}

int64_t Timeline::place(const Value* value) {
  const auto [it, is_new] = places_.emplace(value, static_cast<int64_t>(log_.values.size()));
  if (is_new) {
    TraceLog::Value& added = log_.values.emplace_back();
    added.bytes = static_cast<int64_t>(value->nbytes);
    added.saved = value->saved;
    added.hooks = value->hooks;
    added.all_hooks = value->hooks;
    if (value->producer != nullptr) {
      added.op = place_of_op(value->producer->index);
    } else if (const auto writer = writers_.find(value->origin._unsafe_get_target()); writer != writers_.end()) {
      added.op = writer->second.op;
      log_.ops[added.op].outputs.push_back(it->second);
    }
  }
  return it->second;
}

void Timeline::leaves(int64_t place, const c10::Storage& storage) {
  writers_.insert_or_assign(storage.unsafeGetStorageImpl(), Writer{storage.getWeakStorageImpl(), place});
}

void Timeline::describe(const Node& node, int64_t scope_id) {
  const int64_t node_place = place_of_op(node.index);
  if (node_place == TraceLog::kNone) {
    return;  // it opened the scope that asked for the timeline
  }
  TraceLog::Op& op = log_.ops[node_place];
  op.is_node = true;
  op.replayable = node.replayable;
  op.decision = node.decision;
  op.inputs.clear();
  const auto scope = scope_places_.find(scope_id);
  op.scope = scope == scope_places_.end() ? TraceLog::kNone : scope->second;
  for (const NodeInput& input : node.inputs) {
    if (input.value != nullptr) {
      op.inputs.push_back(place(input.value));
    }
  }
  for (const NodeOutput& output : node.outputs) {
    op.outputs.push_back(place(output.value));
    log_.values[op.outputs.back()].op = node_place;
    log_.values[op.outputs.back()].saved = output.value->saved;
  }
}

void Timeline::note_shape(const Value* value, const at::Tensor& tensor) {
  std::string& shape = at(value).shape;
  if (shape.empty()) {
    shape = shape_of(tensor.sizes(), tensor.scalar_type());
  }
}

void Timeline::set_saved(const Value* value, bool saved) {
  at(value).saved = saved;
}

void Timeline::hooked(const Value* value) {
  TraceLog::Value& logged = at(value);
  logged.all_hooks += value->hooks - logged.hooks;
  logged.hooks = value->hooks;
}

void Timeline::closed() {
  if (log_.closed == TraceLog::kNone) {
    log_.closed = now();
    writers_.clear();
  }
}

void Timeline::changed(const Value* value, Change change, int64_t bytes, int64_t saved_bytes,
                       int64_t recomputed_bytes) {
  TraceLog::Value& logged = at(value);
  if (change == Change::HOLD) {
    logged.held_bytes = bytes;
    logged.last_held_bytes = bytes;
  } else if (change == Change::RELEASE) {
    logged.held_bytes = 0;
  }
  log_.events.push_back({.time = now(),
                         .value = place(value),
                         .bytes = bytes,
                         .saved_bytes = saved_bytes,
                         .recomputed_bytes = recomputed_bytes,
                         .change = change});
}

void Timeline::backward_begins(int graph_task) {
  backwards_.emplace_back(graph_task, log_.backwards.size());
  log_.backwards.push_back({.begin = now()});
}

void Timeline::backward_ends(int graph_task) {
  const auto it =
      std::find_if(backwards_.begin(), backwards_.end(), [&](const auto& run) { return run.first == graph_task; });
  if (it != backwards_.end()) {
    log_.backwards[it->second].end = now();
    backwards_.erase(it);
  }
}

Timeline::Asker Timeline::ask(const Value* value, std::string consumer) {
  Asker outer = std::move(asker_);
  asker_ = {place(value), std::move(consumer)};
  log_.uses.push_back({asker_.value, asker_.consumer});
  return outer;
}

int64_t Timeline::begin_replay(const Node& node) {
  // Taken last, so that a replay that began the log's growth is not charged for it.
  log_.replays.push_back(
      {.op = place_of_op(node.index), .value = asker_.value, .consumer = asker_.consumer, .span = {}});
  log_.replays.back().span.begin = now();
  return static_cast<int64_t>(log_.replays.size()) - 1;
}

void Timeline::end_replay(int64_t place, int64_t end, bool threw) {
  TraceLog::Replay& replay = log_.replays[place];
  replay.span.end = end;
  if (!threw && replay.op != TraceLog::kNone) {
    ++log_.ops[replay.op].replays;
  }
}

TimedCall::TimedCall(Tape& tape, const OpFacts& facts, int64_t index)
    : tape_(tape), exceptions_(std::uncaught_exceptions()) {
  const Tape::Lock lock(tape);
  place_ = tape.timeline()->begin_op(facts, index, Timeline::now());
}

TimedCall::~TimedCall() {
  const int64_t end = end_ != TraceLog::kNone ? end_ : Timeline::now();
  const Tape::Lock lock(tape_);
  tape_.timeline()->end_op(place_, end, std::uncaught_exceptions() > exceptions_);
}

void TimedCall::takes(c10::ArrayRef<c10::IValue> arguments) {
  const Tape::Lock lock(tape_);
  for_each_tensor(arguments, [&](const at::Tensor& tensor) {
    if (!tensor.defined() || !has_plain_storage(*tensor.unsafeGetTensorImpl())) {
      return;
    }
    if (const Value* value = tape_.known(tensor)) {
      tape_.timeline()->takes(place_, value);
    }
  });
}

void TimedCall::leaves(c10::ArrayRef<c10::IValue> results) {
  for_each_tensor(results, [&](const at::Tensor& tensor) { leaves(tensor); });
}

void TimedCall::leaves(const at::Tensor& tensor) {
  if (!tensor.defined() || !has_plain_storage(*tensor.unsafeGetTensorImpl())) {
    return;
  }
  const Tape::Lock lock(tape_);
  if (tape_.known(tensor) == nullptr) {
    tape_.timeline()->leaves(place_, tensor.storage());
  }
}

TimedUnpack::TimedUnpack(Tape& tape, const Value* value) : tape_(tape) {
  const auto node = torch::autograd::get_current_node();
  const Tape::Lock lock(tape);
  outer_ = tape.timeline()->ask(value, node == nullptr ? "" : node->name());
}

TimedUnpack::~TimedUnpack() {
  const Tape::Lock lock(tape_);
  tape_.timeline()->ask(std::move(outer_));
}

TimedReplay::TimedReplay(Tape& tape, const Node& node) : tape_(tape), exceptions_(std::uncaught_exceptions()) {
  const Tape::Lock lock(tape);
  place_ = tape.timeline()->begin_replay(node);
}

TimedReplay::~TimedReplay() {
  const int64_t end = end_ != TraceLog::kNone ? end_ : Timeline::now();
  const Tape::Lock lock(tape_);
  tape_.timeline()->end_replay(place_, end, std::uncaught_exceptions() > exceptions_);
}

}  // namespace ac2::internal
