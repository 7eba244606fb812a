// The history of a region as plain data, for the files that print, draw and explain it.
//
//   const TraceLog log = log_of(TraceAccess::tape(trace));
//
// With a timeline (ScopeOptions::timeline) it is the whole history, with times. Without one it is what is still
// reachable, and `timed` is false.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ac2/form.h"
#include "ac2/policy.h"
#include "ac2/trace_stats.h"

namespace ac2::internal {

struct TraceLog {
  static constexpr int64_t kNone = -1;

  // Times are nanoseconds of the steady clock, so that regions of one process can be laid side by side.
  struct Span {
    int64_t begin = 0;
    int64_t end = kNone;  // not over yet
    int64_t length() const { return end == kNone ? 0 : end - begin; }
  };

  // The decision for a value came from its op, from a tag, or from a name.
  enum class Source : uint8_t { OP, TAG, NAME };

  // The bytes of one storage between two writes.
  struct Value {
    int64_t op = kNone;  // in `ops`, the last to write it; none: from outside the region, or older than the log
    int64_t bytes = 0;
    std::string shape;  // "[8, 128] float", of the first tensor seen; empty if none was
    std::string name;   // that name_tensor() gave it, or of the parameter that it is; empty if it has none
    bool saved = true;  // as opposed to recomputed
    Source source = Source::OP;
    std::string whole;  // "sparse", "nested", …: the kind of a tensor that is held whole; empty for a plain storage
    bool anchored = false;  // the region no longer knows how to compute it again; see tape/anchors.h
    // The bytes held for backward now, and when they were held last. A packed value counts with its packed form.
    int64_t held_bytes = 0;
    int64_t last_held_bytes = 0;
    FormPtr form;           // that it was packed in last
    int64_t hooks = 0;      // how often autograd saves it, now
    int64_t all_hooks = 0;  // at any time
    // Of a value without an op. Weak, so that no other storage gets the address.
    c10::weak_intrusive_ptr<c10::StorageImpl> origin{c10::intrusive_ptr<c10::StorageImpl>()};
  };

  struct Op {
    int64_t index = 0;
    std::string name;
    std::string where;  // "in MODULE", whose parameters it takes, or "after MODULE"; empty if no names are known
    // A node, whose results can be asked for. Views, factories, and writes to what is not recomputed are no nodes. The
    // bytes that such a write leaves are held by reference. With a timeline the outputs of the write include that value
    // all the same.
    bool is_node = false;
    bool replayable =
        true;  // false as well for one that draws, and whose generator's state nobody noted since it is saved
    bool threw = false;
    CheckpointPolicy decision = CheckpointPolicy::PREFER_SAVE;
    int64_t scope = kNone;  // in `scopes`: whose policy decided
    Span forward;           // only if timed
    int64_t replays = 0;
    std::vector<int64_t> inputs;  // in `values`
    std::vector<int64_t> outputs;
  };

  struct Scope {
    int64_t depth = 0;   // 0 is the outermost
    std::string policy;  // its name; empty if it has none
  };

  struct Replay {
    int64_t op = 0;
    int64_t value = kNone;  // that autograd asked for
    std::string consumer;   // the asker: "GeluBackward0"; empty if it was not the engine
    Span span;
  };

  // Autograd asks for a value, and gets it at the end of the span, in which replays may run.
  struct Use {
    int64_t value = kNone;
    std::string consumer;
    Span span;
  };

  enum class Change : uint8_t {
    HOLD,     // for backward
    RELEASE,  // no longer held
    REPLAY,   // replayed bytes come into being
    DROP,     // and go
    EVICT,    // a memory budget drops the value; counted by the events after it
    COPY,     // bytes were copied before they were overwritten; counted by the events beside it
    PACK,     // so many bytes are held in a form of a policy's, as many as the next event of the value says
    OFFLOAD,  // so many bytes are held in another memory
  };

  // The limit of the bytes that are held. PEAK limits all that is allocated.
  struct Bound {
    enum class Kind : uint8_t { NONE, STRICT, SOFT, WITHOUT_NUMBER, PEAK };
    Kind kind = Kind::NONE;
    int64_t bytes = kNone;         // none: without a number, and nothing learned so far
    const void* budget = nullptr;  // tells budgets apart: regions may share one
  };

  // `saved_bytes` and `recomputed_bytes` are those of TraceStats, after the event. `shared_bytes` are those of
  // saved_bytes that a budget does not count, because the program has them too, or another region.
  struct Event {
    int64_t time = 0;
    int64_t value = kNone;
    int64_t bytes = 0;
    int64_t saved_bytes = 0;
    int64_t recomputed_bytes = 0;
    int64_t shared_bytes = 0;
    int64_t limit = kNone;  // of the bytes that count; none while there is none
    // If that is bounded: by the process on the CPU, or on the accelerator that has most, whichever is more.
    int64_t allocated = kNone;
    Change change = Change::HOLD;
  };

  bool timed = false;
  bool verifies = false;   // verify mode compares replays with forward
  int64_t begin = 0;       // when the timeline was
  int64_t closed = kNone;  // when the outermost scope was
  TraceStats stats;
  Bound bound;
  int64_t shared_bytes = 0;  // now
  std::vector<Op> ops;       // in the order in which they ran
  std::vector<Value> values;
  std::vector<Scope> scopes;
  std::vector<Replay> replays;  // in the order in which they began
  std::vector<Use> uses;
  std::vector<Event> events;
  std::vector<Span> backwards;
};

const char* to_string(TraceLog::Change change);
const char* to_string(TraceLog::Source source);
const char* to_string(TraceLog::Bound::Kind kind);
// "[8, 128] float"
std::string shape_text(c10::IntArrayRef sizes, c10::ScalarType type);

}  // namespace ac2::internal
