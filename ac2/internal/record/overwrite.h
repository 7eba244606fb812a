// Sees to the targets of an op before the op writes: their old bytes are copied if something still needs them, and the
// storages no longer stand for the old values.
//
//   Overwrites writes(tape, facts, arguments, outlook);
//   …run the op…
//   …record it, with writes.targets() as NodeWrites…
//
// There are three steps. Under the lock plan() decides, target by target, what becomes of the value that stands there.
// Without the lock copy_bytes() copies the bytes. Under the lock again commit() makes the index forget the storages.
// If the op throws, the targets simply hold something the tape does not know.
//
// Threads: by the recording thread.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>
#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <cstdint>

#include "ac2/internal/graph/seen_writes.h"
#include "ac2/internal/offload/offloaded_value.h"
#include "ac2/internal/operators/op_facts.h"
#include "ac2/internal/record/outlook.h"
#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

class Overwrites {
 public:
  // Whether, and for whom, the bytes that the op found in a target can be had again, so that the op's results can be
  // computed again.
  enum class OldBytes : uint8_t {
    kLost,               // no
    kRecoverable,        // yes
    kRecoverableByName,  // yes, but they are not to be computed again unless a name wants it
    kNotRead,            // they make no difference to any result
  };

  // A storage that is written.
  struct Target {
    c10::StorageImpl* storage = nullptr;
    at::Tensor tensor;     // the first argument in it
    Value* old = nullptr;  // the value that it held; referenced; null if that is unknown or makes no difference
    size_t nbytes = 0;     // before the op
    OldBytes old_bytes = OldBytes::kLost;
    // No version counter is told of the write. The bytes that the op leaves there depend on the old ones, but its
    // results do not. The value there is like those from outside.
    bool accumulates = false;
    // The storage has a value for what the op leaves there already; see part_writes.h and unseen_writes.h.
    bool handed_on = false;
    // Others write there too, so what the op leaves there is not computed again.
    bool foreign = false;

    bool is_read() const { return old_bytes != OldBytes::kNotRead; }
    bool is_recoverable() const { return old_bytes == OldBytes::kRecoverable || old_bytes == OldBytes::kNotRead; }
    bool is_recoverable_by_name() const { return old_bytes == OldBytes::kRecoverableByName; }

   private:
    friend class Overwrites;
    bool used = false;  // by the Overwrites, until the op's node uses it
  };
  // An argument tensor in a target, as it was before the op: out= arguments may be resized.
  struct Argument {
    uint16_t argument = 0;
    int32_t list_index = -1;
    int16_t target = 0;
    const TensorMeta* meta = nullptr;
  };

  // `outlook` is about the op's results, the written arguments among them. A replay for the sake of the other results
  // needs the old bytes.
  Overwrites(Tape& tape, const OpFacts& facts, c10::ArrayRef<c10::IValue> arguments, Outlook outlook);
  ~Overwrites();
  Overwrites(const Overwrites&) = delete;
  Overwrites& operator=(const Overwrites&) = delete;

  c10::ArrayRef<Target> targets() const { return c10::ArrayRef<Target>(targets_).slice(0, num_targets_); }
  c10::ArrayRef<Argument> arguments() const { return arguments_; }
  // The elements that are written of a target, if one argument says it all, else null.
  const TensorMeta* only_argument_of(const Target& target) const;
  // The op has run: ADInplaceOrView counts its writes next.
  void note_versions() const;
  // The op has run, and has made an out= argument smaller that was taken for overwritten as a whole. The bytes behind
  // it are those of before, which a replay would not have.
  static bool left_bytes_behind(const Target& target) {
    return !target.is_read() && !target.accumulates && target.tensor.nbytes() < target.nbytes;
  }
  // Writes into a tensor without plain storage, which cannot be replayed.
  bool opaque() const { return opaque_; }
  // Index of the target that is `storage`, or -1.
  int target_of(const c10::StorageImpl* storage) const;

 private:
  struct Copy {
    Value* value;
    c10::Storage source;
    bool of_original;  // which a backward under way has pinned
  };
  using Copies = c10::SmallVector<Copy, 1>;
  // A value without plain storage, which something still needs, and the tensor that it is.
  struct Whole {
    Value* value;  // referenced
    at::Tensor tensor;
  };
  using OnTheWay = c10::SmallVector<c10::intrusive_ptr<OffloadedValue>, 1>;

  explicit Overwrites(Tape& tape) : tape_(tape) {}

  void collect_targets(LockedTape& tape, const OpFacts& facts, c10::ArrayRef<c10::IValue> arguments);
  void add(LockedTape& tape, const OpFacts& facts, const at::Tensor& tensor, uint16_t argument, int32_t list_index);
  void add_aliases(LockedTape& tape);
  void find_what_is_not_read(const OpFacts& facts, c10::ArrayRef<c10::IValue> arguments);
  // Whether ops that may be replayed want bytes that the op is about to write over.
  bool ops_want_what_goes(LockedTape& tape) const;
  void plan(LockedTape& tape, Target& target, const Outlook& outlook, Copies& copies, OnTheWay& on_the_way);
  // Whether those who want what `target` held can do without a copy.
  bool hand_on(LockedTape& tape, const Target& target, const Outlook& outlook);
  void add_copies(const Target& target, bool must_know, Copies& copies) const;
  void copy_bytes(Copies& copies);
  void add_whole(LockedTape& tape, const at::Tensor& tensor);
  void copy_whole();
  void commit(LockedTape& tape);

  Tape& tape_;
  // The op's own targets come first. Storages of other tensors that lie at the same addresses come behind them.
  c10::SmallVector<Target, 1> targets_;
  size_t num_targets_ = 0;
  c10::SmallVector<Argument, 1> arguments_;
  // The writes that version counters will tell of: each target's first argument, and those that count by themselves.
  c10::SmallVector<SeenWrites::Write, 1> writes_;
  c10::SmallVector<Whole, 1> whole_;
  bool opaque_ = false;
};

}  // namespace ac2::internal
