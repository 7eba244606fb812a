// The results of an op that a plan keeps.
#pragma once

#include <cstdint>

namespace ac2::internal {

// The choice for the results of one op.
enum class Keep : uint8_t {
  kNothing,   // all are computed again
  kWanted,    // those that hooks want are kept for as long as hooks want them
  kAll,       // in addition, those that only replays take are kept while ops that take them may have to be replayed
  kCopied,    // as kAll, but those that may leave are in the host's memory between forward and their next use
  kNarrowed,  // as kAll, but those that have a narrower form are held in it, and unpacked for each use
};

// Whether results are held for replays that take them, too.
inline bool is_saved_for_replays(Keep keep) {
  return keep == Keep::kAll || keep == Keep::kCopied || keep == Keep::kNarrowed;
}

}  // namespace ac2::internal
