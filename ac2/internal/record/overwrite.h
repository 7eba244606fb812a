// Before an op writes: what its targets hold is copied if it must be, and is current no longer.
//
//   Overwrites writes(tape, facts, arguments, {.recompute = true});
//   …run the op…
//   …record it, with writes.targets() as NodeWrites…
//
// If the op throws, the targets simply hold something the tape does not know.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include "ac2/internal/operators/op_facts.h"
#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

class Overwrites {
 public:
  // A storage that is written.
  struct Target {
    c10::StorageImpl* storage = nullptr;
    at::Tensor tensor;          // the first argument in it
    Value* old = nullptr;       // what it held; referenced; null if unknown or of no matter
    size_t nbytes = 0;          // before the op
    bool of_no_matter = false;  // what it held makes no difference to any result
    // What the op leaves there does depend on it all the same, and is a value like those from outside.
    bool accumulates = false;
    // What the op found there can be had again, so the op's results can be computed again.
    bool recoverable() const { return of_no_matter || recoverable_; }
    // The same, but it is not to be computed again unless a name wants it.
    bool recoverable_by_name() const { return !recoverable() && by_name_; }
    // The storage has a value for what the op leaves there already; see part_writes.h and unseen_writes.h.
    bool handed_on() const { return handed_on_; }

   private:
    friend class Overwrites;
    bool recoverable_ = false;
    bool by_name_ = false;
    bool handed_on_ = false;
    bool used_ = false;  // by us
  };
  // An argument tensor in a target, as it was before the op: out= arguments may be resized.
  struct Argument {
    uint16_t argument = 0;
    int32_t list_index = -1;
    int16_t target = 0;
    const TensorMeta* meta = nullptr;
  };

  // What is known before the op runs of how its results will be kept.
  struct Fate {
    bool recompute = false;  // its other results may have to be computed again, for which it needs the old bytes
    bool by_name = false;    // so may what it writes, if a name says so
    bool in_place = false;   // what it writes will be saved, by reference,
    bool offload = false;    // unless it may leave its device
  };
  Overwrites(Tape& tape, const OpFacts& facts, c10::ArrayRef<c10::IValue> arguments, Fate fate);
  ~Overwrites();
  Overwrites(const Overwrites&) = delete;
  Overwrites& operator=(const Overwrites&) = delete;

  c10::ArrayRef<Target> targets() const { return targets_; }
  c10::ArrayRef<Argument> arguments() const { return arguments_; }
  // The elements that are written of a target, if one argument says it all, else null.
  const TensorMeta* only_argument_of(const Target& target) const;
  // Writes into a tensor without plain storage, which cannot be replayed.
  bool opaque() const { return opaque_; }
  // Index of the target that is `storage`, or -1.
  int target_of(const c10::StorageImpl* storage) const;

 private:
  explicit Overwrites(Tape& tape) : tape_(tape) {}
  // Needs the tape's lock.
  void collect(const OpFacts& facts, c10::ArrayRef<c10::IValue> arguments);
  void add(const at::Tensor& tensor, uint16_t argument, int32_t list_index);
  // Those who want what `target` held can do without a copy. Needs the tape's lock.
  bool hand_on(const Target& target);

  Tape& tape_;
  c10::SmallVector<Target, 1> targets_;
  c10::SmallVector<Argument, 1> arguments_;
  bool opaque_ = false;
};

}  // namespace ac2::internal
