// The bytes that a tape holds by reference of tensors from outside its region, and that it is not alone in holding:
// parameters, inputs, what the program or another region has too. A memory budget does not count them.
//
//   shared.held(value);            // each value that the tape holds from now on
//   shared.held_no_more(value);    // when it has let go of it
//   … shared.bytes() …
//
// LibTorch does not tell when the program drops a tensor. bytes() looks at up to 64 of them a call, so that with more a
// dropped one may count some calls longer.
//
// Threads: guarded by the tape's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "ac2/internal/graph/node.h"

namespace ac2::internal {

// Whether the value's bytes come from outside and somebody beside the tape has them.
bool is_shared(const Value& value);

class SharedBytes {
 public:
  void held(const Value& value);
  void held_no_more(const Value& value);
  int64_t bytes();

 private:
  struct Entry {
    const Value* value;
    int64_t bytes;
    bool shared;
  };

  void look_at(Entry& entry);

  std::vector<Entry> entries_;
  absl::flat_hash_map<const Value*, size_t> places_;
  size_t cursor_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace ac2::internal
