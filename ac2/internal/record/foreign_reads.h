// The bytes that an op has just read from foreign memory (libtorch/foreign_memory.h), which may hold something else
// by the time of a replay.
//
//   const ForeignReads reads(tape, arguments, bytes_of(results));   // without the tape's lock
//   if (Value* copy = reads.copy_of(value)) …                       // a replay takes this instead of `value`
//
// Either all that the op has read there is copied, or nothing is: then its results must be saved. The way that takes
// fewer bytes is chosen. Bytes that an earlier op had copied count as none if they have not changed since.
//
// Rejected: a copy of all foreign memory when it is first seen (it may be a data set in one buffer); a look at the
// bytes before each replay (the old bytes are gone by then); the same copies for exposed results (a Triton kernel asks
// for the pointers of all that it takes).
//
// Threads: by the recording thread.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Storage.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <cstdint>

#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

class ForeignReads {
 public:
  // May run code of the program's: the allocator's.
  ForeignReads(Tape& tape, c10::ArrayRef<c10::IValue> arguments, int64_t result_bytes);
  ~ForeignReads();
  ForeignReads(const ForeignReads&) = delete;
  ForeignReads& operator=(const ForeignReads&) = delete;

  // Null if the results must be saved.
  Value* copy_of(const Value& value) const;

 private:
  struct Source {
    Value* value;  // referenced, as `copy`
    c10::Storage storage;
    Value* copy = nullptr;
    c10::Storage copied = {};  // the bytes of `copy`
  };

  explicit ForeignReads(Tape& tape) : tape_(tape) {}

  void find_sources(LockedTape& tape, c10::ArrayRef<c10::IValue> arguments);
  void forget_copy(LockedTape& tape, Source& source);
  void copy(Source& source);

  Tape& tape_;
  c10::SmallVector<Source, 1> sources_;
};

}  // namespace ac2::internal
