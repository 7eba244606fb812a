// Saves the results of the listed ops in files, recomputes everything else.
//
//   const ac2::Policy policy = ac2::policies::spill_to_file("/scratch", {"aten::mm", "aten::gelu"});
//   ...
//   ac2::PolicyScope scope(policy);
//
// So a process can train what its memory cannot hold: of a result that is spilled, memory holds nothing between its
// last use in forward and its first in backward. A thread of the policy's writes, while forward goes on; backward waits
// until a result is written, reads it back, and verifies its checksum (CRC-32). Gradients are those of plain autograd,
// bit for bit.
//
// Results wait for the thread as copies, so that the program may overwrite its own: at most `queue_bytes` of them.
// Where a disk is slower than forward, forward waits for it. A result that is larger than the queue is written before
// its op returns. None of these bytes are in TraceStats::saved_bytes.
//
// Files have no name: nothing is left in the directory, however the process ends, and their space is free once no graph
// needs what is in them. A file is filled with `file_bytes` (and the rest of one result), whatever region they are
// from.
//
// Ops: SaveWithHooks (a MUST) for the listed ones, PREFER_RECOMPUTE for the others. Names as in policies/listed_ops.h.
// Throws c10::Error, when it is made, for a directory in which no file can be made and for a name that no operator has.
// A disk that is full is a c10::Error that says so, from an op of forward after the one whose result could not be
// written, or from backward. So are bytes that come back changed.
//
// Lifetime: the directory is needed while the policy, a copy of it, or a graph made under it lives; so does the thread.
// Threads: any.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ac2/policy.h"

namespace ac2::policies {

struct SpillOptions {
  int64_t queue_bytes = int64_t{64} << 20;
  int64_t file_bytes = int64_t{256} << 20;
};

Policy spill_to_file(const std::string& directory, const std::vector<std::string>& ops, SpillOptions options = {});

}  // namespace ac2::policies
