#include "ac2/internal/observe/timeline.h"

#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <chrono>
#include <exception>

#include "absl/container/flat_hash_set.h"
#include "ac2/internal/allocator/counted_memory.h"
#include "ac2/internal/budget/budget.h"
#include "ac2/internal/libtorch/for_each_tensor.h"
#include "ac2/internal/observe/whole_tensor.h"

namespace ac2::internal {

namespace {

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

TraceLog::Change change_of(ByteChange::Kind kind) {
  switch (kind) {
    case ByteChange::Kind::kHold:
      return TraceLog::Change::HOLD;
    case ByteChange::Kind::kRelease:
      return TraceLog::Change::RELEASE;
    case ByteChange::Kind::kReplay:
      return TraceLog::Change::REPLAY;
    case ByteChange::Kind::kDrop:
      return TraceLog::Change::DROP;
    case ByteChange::Kind::kEvict:
      return TraceLog::Change::EVICT;
    case ByteChange::Kind::kCopy:
      return TraceLog::Change::COPY;
    case ByteChange::Kind::kPack:
      return TraceLog::Change::PACK;
    case ByteChange::Kind::kOffload:
      return TraceLog::Change::OFFLOAD;
  }
  return TraceLog::Change::HOLD;
}

}  // namespace

class Timeline::TimedCall final : public CallObservation {
 public:
  TimedCall(Timeline& timeline, const OpFacts& facts, int64_t index)
      : timeline_(timeline), exceptions_(std::uncaught_exceptions()) {
    timeline_.note_accelerator_bytes();
    const Tape::Lock lock(timeline_.tape_);
    place_ = static_cast<int64_t>(timeline_.log_.ops.size());
    TraceLog::Op& op = timeline_.log_.ops.emplace_back();
    op.index = index;
    op.name = facts.name;
    op.forward.begin = now();
  }

  ~TimedCall() override {
    const int64_t end = end_ != TraceLog::kNone ? end_ : now();
    const Tape::Lock lock(timeline_.tape_);
    TraceLog::Op& op = timeline_.log_.ops[place_];
    op.forward.end = end;
    op.threw = std::uncaught_exceptions() > exceptions_;
  }

  void takes(c10::ArrayRef<c10::IValue> arguments) override {
    const Tape::Lock tape(timeline_.tape_);
    for_each_tensor(arguments, [&](const at::Tensor& tensor) {
      const Value* value = has_plain_storage(tensor) ? tape->storages().peek(tensor) : nullptr;
      if (value != nullptr) {
        const int64_t input = timeline_.place(*value);
        timeline_.log_.ops[place_].inputs.push_back(input);
      }
    });
  }

  // The op's time ends here: the recording of it is not counted.
  void ran() override {
    end_ = now();
    timeline_.note_accelerator_bytes();
  }

  void recorded(c10::ArrayRef<c10::IValue> results, c10::ArrayRef<at::Tensor> written) override {
    const Tape::Lock tape(timeline_.tape_);
    for_each_tensor(results, [&](const at::Tensor& tensor) { leaves(*tape, tensor); });
    for (const at::Tensor& tensor : written) {
      leaves(*tape, tensor);
    }
  }

 private:
  // A storage that the tape knows has a value, whose producer tells which op wrote it. Other storages are noted here.
  void leaves(LockedTape& tape, const at::Tensor& tensor) {
    if (has_plain_storage(tensor) && tape.storages().peek(tensor) == nullptr) {
      const c10::Storage& storage = tensor.storage();
      timeline_.writers_.insert_or_assign(storage.unsafeGetStorageImpl(), Writer{storage.getWeakStorageImpl(), place_});
    }
  }

  Timeline& timeline_;
  int64_t place_ = 0;
  int64_t end_ = TraceLog::kNone;
  int exceptions_;
};

class Timeline::TimedUnpack final : public UnpackObservation {
 public:
  TimedUnpack(Timeline& timeline, const Value& value) : timeline_(timeline) {
    const auto node = torch::autograd::get_current_node();
    timeline_.note_accelerator_bytes();
    const Tape::Lock lock(timeline_.tape_);
    outer_ = std::move(timeline_.asker_);
    timeline_.asker_ = {timeline_.place(value), node == nullptr ? "" : node->name()};
    place_ = timeline_.log_.uses.size();
    timeline_.log_.uses.push_back(
        {.value = timeline_.asker_.value, .consumer = timeline_.asker_.consumer, .span = {.begin = now()}});
  }
  ~TimedUnpack() override {
    const int64_t end = now();
    const Tape::Lock lock(timeline_.tape_);
    timeline_.log_.uses[place_].span.end = end;
    timeline_.asker_ = std::move(outer_);
  }

 private:
  Timeline& timeline_;
  size_t place_ = 0;
  Asker outer_;
};

class Timeline::TimedReplay final : public ReplayObservation {
 public:
  TimedReplay(Timeline& timeline, const Node& node) : timeline_(timeline), exceptions_(std::uncaught_exceptions()) {
    const Tape::Lock lock(timeline_.tape_);
    auto& replays = timeline_.log_.replays;
    place_ = static_cast<int64_t>(replays.size());
    const Asker& asker = timeline_.asker_;
    replays.push_back(
        {.op = timeline_.place_of_op(node.index), .value = asker.value, .consumer = asker.consumer, .span = {}});
    // Taken last, so that a replay for which the log had to grow is not charged for it.
    replays.back().span.begin = now();
  }

  ~TimedReplay() override {
    const int64_t end = end_ != TraceLog::kNone ? end_ : now();
    const Tape::Lock lock(timeline_.tape_);
    TraceLog::Replay& replay = timeline_.log_.replays[place_];
    replay.span.end = end;
    if (std::uncaught_exceptions() == exceptions_ && replay.op != TraceLog::kNone) {
      ++timeline_.log_.ops[replay.op].replays;
    }
  }

  void ran() override {
    end_ = now();
    timeline_.note_accelerator_bytes();
  }

 private:
  Timeline& timeline_;
  int64_t place_ = 0;
  int64_t end_ = TraceLog::kNone;
  int exceptions_;
};

Timeline::Timeline(Tape& tape) : tape_(tape) {
  log_.timed = true;
  log_.begin = now();
}

std::shared_ptr<Timeline> Timeline::start(Tape& tape) {
  std::shared_ptr<Timeline> timeline(new Timeline(tape));
  const Tape::Lock locked(tape);
  timeline->log_what_is_held(*locked);
  locked->observers().add(timeline);
  return timeline;
}

void Timeline::log_what_is_held(LockedTape& tape) {
  const int64_t recomputed_bytes = tape.ledger().recomputed_bytes();
  absl::flat_hash_set<const Value*> seen;
  int64_t held_bytes = 0;
  const auto visit = [&](const Value* value) {
    if (value == nullptr || !value->has_held_bytes() || !seen.insert(value).second) {
      return;
    }
    const int64_t bytes = value->held_bytes();
    held_bytes += bytes;
    bytes_changed({*value, ByteChange::Kind::kHold, bytes, held_bytes, recomputed_bytes});
  };
  for (const TapeHook* hook = tape.hooks().first(); hook != nullptr; hook = hook->next()) {
    visit(hook->value());
  }
  tape.storages().for_each(visit);
  for (const Node* node : tape.reachable_nodes()) {
    for (const NodeInput& input : node->inputs) {
      visit(input.value);
    }
  }
}

void Timeline::add_scope(int64_t id, int64_t depth, const std::string& policy) {
  if (scope_places_.emplace(id, static_cast<int64_t>(log_.scopes.size())).second) {
    log_.scopes.push_back({depth, policy});
  }
}

// A single thread records, and begins the ops in the order of their indices.
int64_t Timeline::place_of_op(int64_t index) const {
  return log_.ops.empty() || index < log_.ops.front().index ? TraceLog::kNone : index - log_.ops.front().index;
}

int64_t Timeline::place(const Value& value) {
  const auto [it, is_new] = places_.emplace(&value, static_cast<int64_t>(log_.values.size()));
  if (is_new) {
    TraceLog::Value& added = log_.values.emplace_back();
    added.bytes = value.bytes();
    added.saved = value.decided() == Decided::kSave;
    added.hooks = value.hooks();
    added.all_hooks = value.hooks();
    if (value.producer() == nullptr) {
      added.origin = value.weak_original();
    }
    if (value.producer() != nullptr) {
      added.op = place_of_op(value.producer()->index);
    } else if (const auto writer = writers_.find(value.original_address()); writer != writers_.end()) {
      added.op = writer->second.op;
      log_.ops[added.op].outputs.push_back(it->second);
    }
  }
  return it->second;
}

void Timeline::node_recorded(const Node& node, const PolicyDecision& /*decision*/, int64_t scope_id, double /*cost*/) {
  const int64_t node_place = place_of_op(node.index);
  if (node_place == TraceLog::kNone) {
    return;  // the op opened the scope that asked for the timeline
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
      op.inputs.push_back(place(*input.value));
    }
  }
  for (const NodeOutput& output : node.outputs) {
    op.outputs.push_back(place(*output.value));
    log_.values[op.outputs.back()].op = node_place;
    log_.values[op.outputs.back()].saved = output.value->decided() == Decided::kSave;
  }
}

void Timeline::anchored(const Value& value) {
  at(value).saved = true;
  at(value).anchored = true;
}

void Timeline::tensor_seen(const Value& value, const at::Tensor& tensor) {
  std::string& shape = at(value).shape;
  if (shape.empty()) {
    shape = shape_text(tensor.sizes(), tensor.scalar_type());
  }
}

void Timeline::decided_again(const Value& value, const PolicyDecision& /*decision*/, DecidedBy by) {
  at(value).source = by == DecidedBy::kTag ? TraceLog::Source::TAG : TraceLog::Source::NAME;
}

void Timeline::hook_added(const TapeHook& /*hook*/, const Value& value) {
  TraceLog::Value& logged = at(value);
  logged.all_hooks += value.hooks() - logged.hooks;
  logged.hooks = value.hooks();
  logged.whole = kind_of_whole_tensor(value);
}

void Timeline::region_closed() {
  if (log_.closed == TraceLog::kNone) {
    log_.closed = now();
    writers_.clear();
  }
}

void Timeline::bytes_changed(const ByteChange& change) {
  TraceLog::Value& logged = at(change.value);
  if (change.kind == ByteChange::Kind::kHold) {
    logged.held_bytes = change.bytes;
    logged.last_held_bytes = change.bytes;
    shared_.held(change.value);
    if (change.value.name() != nullptr) {
      logged.name = *change.value.name();
    }
  } else if (change.kind == ByteChange::Kind::kRelease) {
    logged.held_bytes = 0;
    shared_.held_no_more(change.value);
  } else if (change.kind == ByteChange::Kind::kPack) {
    logged.form = change.value.packed_form()->form;
  }
  TraceLog::Event& event = log_.events.emplace_back();
  event = {.time = now(),
           .value = place(change.value),
           .bytes = change.bytes,
           .saved_bytes = change.saved_bytes,
           .recomputed_bytes = change.recomputed_bytes,
           .shared_bytes = shared_.bytes(),
           .change = change_of(change.kind)};
  note_bound(event);
}

void Timeline::note_bound(TraceLog::Event& event) const {
  const Budget* budget = tape_.budget();
  if (budget == nullptr) {
    return;
  }
  const int64_t limit = budget->limit_now();
  event.limit = limit == LearnedLimit::kNone ? TraceLog::kNone : limit;
  if (budget->peak()) {
    event.allocated = std::max(CountedMemory::get().bytes(), accelerator_bytes_);
  }
}

void Timeline::note_accelerator_bytes() {
  const Budget* budget = tape_.budget();
  if (budget != nullptr && budget->peak()) {
    const int64_t bytes = budget->peak()->accelerator_bytes();
    const Tape::Lock lock(tape_);
    accelerator_bytes_ = bytes;
  }
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

std::unique_ptr<CallObservation> Timeline::observe_call(const OpFacts& facts, int64_t index) {
  return std::make_unique<TimedCall>(*this, facts, index);
}

std::unique_ptr<UnpackObservation> Timeline::observe_unpack(const Value& value) {
  return std::make_unique<TimedUnpack>(*this, value);
}

std::unique_ptr<ReplayObservation> Timeline::observe_replay(const Node& node) {
  return std::make_unique<TimedReplay>(*this, node);
}

}  // namespace ac2::internal
