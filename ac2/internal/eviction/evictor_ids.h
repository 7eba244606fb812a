// The names under which callers and the evictor speak of values and nodes, and what policies may say of a value. Alone
// in this header, so that code that stores them needs nothing else of the evictor.
#pragma once

#include <cstdint>

namespace ac2::internal {

// Small numbers. An id is used again after its value or node is gone.
using ValueId = uint32_t;
using NodeId = uint32_t;
inline constexpr uint32_t kNoId = ~uint32_t{0};

enum class Retention : uint8_t {
  kPreferRecompute,  // evicted before any value of the next kind
  kPreferSave,       // may be evicted
  kMustSave,         // never evicted
};

}  // namespace ac2::internal
