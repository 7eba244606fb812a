// Verify mode (ScopeOptions::verify): an observer that remembers what forward computed as fingerprints, and holds
// against them what replays compute, what ops are given and what they leave. A replay that differs shows a kernel that
// is not deterministic. An argument or a result that differs shows a write that nobody declared, at the op that made
// it.
//
// The table below is guarded by the tape's lock. All comparisons are made without the lock, because a fingerprint may
// need ops.
//
// Threads: as Observer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "ac2/internal/graph/node.h"
#include "ac2/internal/libtorch/tensor_meta.h"
#include "ac2/internal/tape/observer.h"
#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

class Verifier final : public Observer {
 public:
  // Observes `tape` from now on. Takes its lock.
  static std::shared_ptr<Verifier> start(Tape& tape);

  bool checks_replays() const override { return true; }
  void value_died(const Value& value) override;
  std::unique_ptr<CallObservation> observe_call(const OpFacts& facts, int64_t index) override;
  std::unique_ptr<ReplayObservation> observe_replay(const Node& node) override;
  // Throws if `tensor` lies in a value that would be recomputed and is not what its op returned.
  void before_save(const at::Tensor& tensor) override { check_unwritten(tensor); }
  void before_pack(const Value& value, const at::Tensor& tensor) override;
  void after_unpack(const Value& value, const c10::Storage& storage) override;

 private:
  class VerifiedCall;
  class VerifiedReplay;

  // Which elements of a value are compared, and what they were.
  struct Expected {
    const TensorMeta* elements = nullptr;
    uint64_t fingerprint = 0;
  };

  explicit Verifier(Tape& tape) : tape_(tape) {}
  void check_unwritten(const at::Tensor& tensor);
  // The tape's lock is held. Null if nothing is known of the value.
  const Expected* expected(const Value& value) const;

  Tape& tape_;
  absl::flat_hash_map<const Value*, Expected> expected_;
  // Values that came back from SaveWithHooks with other bits, or that are left undefined by their op, or that were
  // computed from such a value: nothing can be said about them.
  absl::flat_hash_set<const Value*> inexact_;
};

}  // namespace ac2::internal
