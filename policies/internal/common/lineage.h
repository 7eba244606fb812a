// From which tensors that require a gradient the values of a region descend, and where two branches from one of them
// join.
//
//   x ──► f(x) ──► x + f(x)         joins: both descend from x
//   x ──► x · W                     does not: W is no descendant of x
//
// A source is a tensor from outside the region that requires a gradient: the region's input, a parameter. Each storage
// has the set of its sources, a bit for each; an op with one input passes its set on, so that a chain shares one.
// A parameter, a leaf from outside, is no branch where an op takes it as it is: x · W joins nothing though x descends
// from W too (tied weights). But where it has a result's sizes it is one, for it may be the x of x + f(x).
// Threads: none, belongs to one region.
#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "ac2/policy.h"

namespace ac2::policies::internal {

class Lineage {
 public:
  // Notes what the op computed and wrote. Returns the bytes of the branches that it joins: of its inputs that have a
  // source in common with an input in another storage, each storage counted once; 0 if it joins nothing.
  int64_t add(const OpContext& op);

 private:
  using Sources = std::shared_ptr<const std::vector<uint64_t>>;  // null: none
  struct Entry {
    // Weak, and keeps the address from being given to another storage.
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    Sources sources = nullptr;
    bool is_parameter = false;
  };

  // Null if it has no sources, or no storage.
  const Entry* entry_of(const at::Tensor& tensor);
  // The tensor has a storage.
  Entry& set(const at::Tensor& tensor, const Sources& sources);
  void forget_the_dead();

  absl::flat_hash_map<const c10::StorageImpl*, Entry> entries_;
  size_t next_source_ = 0;
  size_t forget_at_ = 64;
};

}  // namespace ac2::policies::internal
