// Saves the results of the listed ops in files, recomputes everything else.
//
//   const ac2::Policy policy = ac2::policies::spill_to_file("/scratch", {"aten::mm", "aten::gelu"});
//   ...
//   ac2::PolicyScope scope(policy);
//
// With it a process can train what its memory cannot hold: memory holds no spilled result between its last use in
// forward and its first use in backward. A thread of the policy writes the results while forward goes on. Backward
// waits until a result is written, reads it back, and checks its checksum (CRC-32). Gradients are bitwise identical to
// those of plain autograd.
//
// Results wait for the thread as copies, so that the program may overwrite its own; there are at most `queue_bytes` of
// copies. If a disk is slower than forward, forward waits for it. A result that is larger than the queue is written
// before its op returns. None of these bytes are in TraceStats::saved_bytes.
//
// The files have no name. So nothing is left in the directory, however the process ends, and the space of a file is
// free once no graph needs what is in it. Each file takes `file_bytes`, and the rest of the result that exceeds them;
// results of several regions share files.
//
// SaveWithHooks (a MUST) for the listed ops, PREFER_RECOMPUTE for all others. Names are as in policies/listed_ops.h.
// Making the policy throws c10::Error for a directory in which no file can be made, and for a name that no operator
// has. A full disk is a c10::Error that says so, from a later op of forward or from backward. Bytes that come back
// changed are a c10::Error from backward.
//
// Lifetime: the directory must exist, and the thread runs, while the policy, a copy of it, or a graph made under it
// lives.
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
