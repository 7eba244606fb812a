// The log behind ScopeOptions::timeline: Tape keeps one if it is asked to, and is otherwise as it was.
//
//   std::optional<TimedCall> timed;                           // forward, in a tape that has a timeline
//   timed.emplace(tape, facts, index);
//   …run the op…
//   timed->ran();
//   …record it…: timeline.describe(…)
//   timed->leaves(results);
//
// It grows with the region, by about 600 bytes for an op that is replayed once, and keeps no tensor.
// Threads: everything but now() needs the tape's lock.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "ac2/internal/tape/graph.h"
#include "ac2/internal/tape/trace_log.h"

namespace ac2::internal {

class Tape;

class Timeline {
 public:
  using Change = TraceLog::Change;

  Timeline();

  static int64_t now();

  // Policies, by their id in the PolicyStack. One that is known already is left as it is.
  void add_scope(int64_t id, int64_t depth, const std::string& policy);

  // --- forward ------------------------------------------------------------------------------------------------------

  // Returns its place in the log.
  int64_t begin_op(const OpFacts& facts, int64_t index, int64_t begin);
  void end_op(int64_t place, int64_t end, bool threw);
  // What it takes and leaves, of storages that the tape knows; a node says so by itself.
  void takes(int64_t place, const Value* value) { log_.ops[place].inputs.push_back(this->place(value)); }
  void leaves(int64_t place, const c10::Storage& storage);
  // It has become a node, by the policy of scope `scope_id` (-1: none was asked).
  void describe(const Node& node, int64_t scope_id);
  // Sizes and dtype, where none are known yet.
  void note_shape(const Value* value, const at::Tensor& tensor);
  void set_saved(const Value* value, bool saved);
  void note_decision(const Value* value, TraceLog::Source source) { at(value).source = source; }
  // After Value::hooks has changed.
  void hooked(const Value* value);
  void unhooked(const Value* value) { at(value).hooks = value->hooks; }
  void closed();

  // --- bytes --------------------------------------------------------------------------------------------------------

  void changed(const Value* value, Change change, int64_t bytes, int64_t saved_bytes, int64_t recomputed_bytes);
  // It is about to be freed.
  void forget(const Value* value) { places_.erase(value); }

  // --- backward -----------------------------------------------------------------------------------------------------

  void backward_begins(int graph_task);
  void backward_ends(int graph_task);
  // Whom replays are for from now on; returns whom they were for.
  struct Asker {
    int64_t value = TraceLog::kNone;
    std::string consumer;
  };
  Asker ask(const Value* value, std::string consumer);
  void ask(Asker asker) { asker_ = std::move(asker); }
  int64_t begin_replay(const Node& node);
  void end_replay(int64_t place, int64_t end, bool threw);

  const TraceLog& log() const { return log_; }

 private:
  int64_t place(const Value* value);
  TraceLog::Value& at(const Value* value) { return log_.values[place(value)]; }
  int64_t place_of_op(int64_t index) const;

  TraceLog log_;
  absl::flat_hash_map<const Value*, int64_t> places_;
  absl::flat_hash_map<int64_t, int64_t> scope_places_;
  // Storages of which the tape has no value, and the op that wrote them last. Weak, so that no other gets the address.
  struct Writer {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    int64_t op;
  };
  absl::flat_hash_map<const c10::StorageImpl*, Writer> writers_;
  std::vector<std::pair<int, size_t>> backwards_;  // graph task and place in the log of those under way
  Asker asker_;
};

// One call in forward, from its beginning to its end, exceptions included.
class TimedCall {
 public:
  TimedCall(Tape& tape, const OpFacts& facts, int64_t index);
  ~TimedCall();
  TimedCall(const TimedCall&) = delete;
  TimedCall& operator=(const TimedCall&) = delete;

  // Before it runs.
  void takes(c10::ArrayRef<c10::IValue> arguments);
  // What comes after is the recorder's work, and is not counted.
  void ran() { end_ = Timeline::now(); }
  // After it was recorded: what it returned or wrote.
  void leaves(c10::ArrayRef<c10::IValue> results);
  void leaves(const at::Tensor& tensor);

 private:
  Tape& tape_;
  int64_t place_ = 0;
  int64_t end_ = TraceLog::kNone;
  int exceptions_;
};

// While one lives, replays on this tape are for `value`.
class TimedUnpack {
 public:
  TimedUnpack(Tape& tape, const Value* value);
  ~TimedUnpack();
  TimedUnpack(const TimedUnpack&) = delete;
  TimedUnpack& operator=(const TimedUnpack&) = delete;

 private:
  Tape& tape_;
  Timeline::Asker outer_;
};

// One replay.
class TimedReplay {
 public:
  TimedReplay(Tape& tape, const Node& node);
  ~TimedReplay();
  TimedReplay(const TimedReplay&) = delete;
  TimedReplay& operator=(const TimedReplay&) = delete;

  void ran() { end_ = Timeline::now(); }

 private:
  Tape& tape_;
  int64_t place_ = 0;
  int64_t end_ = TraceLog::kNone;
  int exceptions_;
};

// "[8, 128] float"
std::string shape_of(c10::IntArrayRef sizes, c10::ScalarType type);

}  // namespace ac2::internal
