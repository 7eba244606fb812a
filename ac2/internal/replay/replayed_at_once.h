// Warns, once in a process, of a region that saves no memory because backward has all of it there at once.
//
// A region around a whole model whose policy saves nothing is such a region: the first saved tensor that backward wants
// is the model's last, and to compute it takes all that comes before. The warning is given at the end of a backward
//   - in which a region had at least nine tenths of the bytes that it replays there at once,
//   - which were at least 16 MiB,
//   - and at least nine tenths of what all regions of that backward had to replay,
//   - and after which the program had made few nodes of autograd's when the backward began (on the region's thread).
// So regions around blocks are not warned of: there are several of them, or others follow. A region under a memory
// budget is warned of only if a policy says MUST_RECOMPUTE, so that the budget has no say. The sign of that is a budget
// that has dropped nothing and is at least twice as large as what is replayed, which is more than the region holds.
//
// Nothing is counted in forward, and in backward nothing once the warning was given.
#pragma once

#include <optional>
#include <string>

#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

// The first unpacking of a backward on this tape, all of whose hooks are pinned.
void backward_enters(LockedTape& tape, int graph_task);
// The backward has unpacked a tensor, for which it may have replayed.
void backward_has_unpacked(LockedTape& tape, int graph_task);
// The end of a backward, to be called for each call of backward_enters(). The tape may be gone by then. Returns the
// warning, which is to be given without any lock.
std::optional<std::string> backward_leaves(int graph_task);

}  // namespace ac2::internal
