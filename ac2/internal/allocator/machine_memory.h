// The memory of the machine that this process may still take.
//
//   const MachineMemory memory;                         // or of files that a test has written
//   const MemoryRoom room = memory.room();
//   if (room.bytes < wanted) … "the cgroup /jobs/7 has 3 MiB left" …
//
// Linux hands out more memory than there is and ends a process later: an allocation succeeds where there is too little.
// The smallest of these limits rules:
//
//   - the process's cgroup and all that it lies in: memory.max less memory.current, where file pages that were not used
//     lately count as free (cgroup v2, or memory.limit_in_bytes and memory.usage_in_bytes of v1);
//   - RLIMIT_AS less the process's address space;
//   - RLIMIT_DATA less the process's private memory that may be written;
//   - the MemAvailable of /proc/meminfo.
//
// A file that is not there, or says nothing, sets no limit. Of each limit a part is left alone, the reserve: a 64th,
// but no less than 16 MiB and no more than 1 GiB. (Of RLIMIT_AS less what libraries take.) The bookkeeping of the
// program and of ac2 needs memory when there is little.
//
// Cost: some ten file reads, so it is not for every allocation. Threads: any.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>

namespace ac2::internal {

struct MemoryRoom {
  // Past kAddressSpace the allocation fails by itself; past kMachine the process is ended.
  enum class Limit : uint8_t { kNone, kAddressSpace, kMachine };

  int64_t bytes = std::numeric_limits<int64_t>::max();  // less the reserve; never negative
  int64_t reserve = 0;                                  // of which so many bytes are there
  int64_t lacking = 0;                                  // of the reserve, and what is used beyond the limit
  Limit limit = Limit::kNone;
  bool swaps = false;  // the machine has swap left, so that passing kMachine need not end the process
  std::string name;    // "RLIMIT_AS", "RLIMIT_DATA", "memory.max of /sys/fs/cgroup/jobs/7", "MemAvailable"; empty if
                       // there is no limit
};

// Tells how much may still be taken. Tests have gauges of their own.
class MemoryGauge {
 public:
  virtual ~MemoryGauge() = default;
  virtual MemoryRoom room() const = 0;
};

// Whether RLIMIT_AS or RLIMIT_DATA is another one than at the last call, and at the first call. Two system calls, which
// read no file.
// The room that a gauge has told may be trusted for a while as long as the limit is the same. Any thread; of several
// one is told.
bool has_address_space_limit_changed();

class MachineMemory final : public MemoryGauge {
 public:
  struct Paths {
    std::string proc = "/proc";
    std::string cgroup = "/sys/fs/cgroup";
  };

  MachineMemory() = default;
  explicit MachineMemory(Paths paths) : paths_(std::move(paths)) {}

  MemoryRoom room() const override;

  // The rest of `limit`, of which `used` bytes are in use.
  static MemoryRoom room_of(int64_t limit, int64_t used, MemoryRoom::Limit kind, std::string name);

 private:
  Paths paths_;
};

}  // namespace ac2::internal
