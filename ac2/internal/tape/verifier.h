// Verify mode (ScopeOptions::verify): what forward computed is remembered as fingerprints, and replays are held against
// them.
//
//   std::optional<VerifiedCall> verified;                     // forward, in a tape that has a verifier
//   verified.emplace(tape, facts, arguments, index);
//   …run the op…
//   verified->check_arguments();                              // throws if it wrote where it did not say so
//   …record it…
//   verified->note_results(results, writes);
//
//   check_replay(tape, node, results, writes);                // backward
//
// Whatever is compared is compared without the tape's lock: a fingerprint may need ops.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "ac2/internal/libtorch/tensor_meta.h"
#include "ac2/internal/operators/op_facts.h"
#include "ac2/internal/tape/graph.h"

namespace ac2::internal {

class Tape;

// Which elements of a value are compared, and what they were.
struct Expected {
  const TensorMeta* elements = nullptr;
  uint64_t fingerprint = 0;
};

// Guarded by the tape's lock.
class Verifier {
 public:
  void expect(const Value* value, Expected expected) { expected_.insert_or_assign(value, expected); }
  const Expected* expected(const Value* value) const {
    const auto it = expected_.find(value);
    return it == expected_.end() ? nullptr : &it->second;
  }
  // Came back from SaveWithHooks with other bits, or is left undefined by its op, or was computed from such a value:
  // nothing can be said about it.
  void set_inexact(const Value* value) { inexact_.insert(value); }
  bool is_inexact(const Value* value) const { return inexact_.contains(value); }
  // It is about to be freed.
  void forget(const Value* value) {
    expected_.erase(value);
    inexact_.erase(value);
  }

 private:
  absl::flat_hash_map<const Value*, Expected> expected_;
  absl::flat_hash_set<const Value*> inexact_;
};

// One call in forward.
class VerifiedCall {
 public:
  // Throws if an argument that would be recomputed is not what its op returned: something wrote to it that no
  // dispatcher saw.
  VerifiedCall(Tape& tape, const OpFacts& facts, c10::ArrayRef<c10::IValue> arguments, int64_t index);

  // After the op: throws if it changed an argument that neither its schema nor the table of hidden writes says it
  // writes.
  void check_arguments() const;

  // After it has been recorded.
  void note_results(c10::ArrayRef<c10::IValue> results) const;

 private:
  struct Read {
    at::Tensor tensor;
    uint16_t argument;
    uint64_t before;
  };
  // The elements that made up the value which stood in a storage that the op writes.
  struct Written {
    at::Tensor tensor;
    const TensorMeta* elements;
  };

  Tape& tape_;
  const OpFacts& facts_;
  int64_t index_;
  std::vector<Read> reads_;
  std::vector<Written> written_;
};

// Throws if `tensor` lies in a value that would be recomputed and is not what its op returned.
void check_unchanged(Tape& tape, const at::Tensor& tensor);

// `storages[i]` holds what the replay made of node.outputs[i], or nothing. Throws if that is not what forward computed.
void check_replay(Tape& tape, const Node& node, c10::ArrayRef<c10::Storage> storages);

// What pack is given of a value, and what unpack makes of it.
void note_packed(Tape& tape, const Value& value, const at::Tensor& tensor);
void check_unpacked(Tape& tape, const Value& value, const c10::Storage& storage);

}  // namespace ac2::internal
