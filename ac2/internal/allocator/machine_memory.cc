#include "ac2/internal/allocator/machine_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

namespace ac2::internal {

namespace {

constexpr int64_t kKiB = 1024;
constexpr int64_t kMiB = int64_t{1} << 20;

// A file of one number. "max", and what is larger than any memory, are none.
std::optional<int64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  int64_t number = 0;
  constexpr int64_t kNoLimit = int64_t{1} << 60;
  return file >> number && number >= 0 && number < kNoLimit ? std::optional(number) : std::nullopt;
}

// A file of lines of a name and a number. 0 if there is no such line.
int64_t number_of(const std::string& path, std::string_view name) {
  std::ifstream file(path);
  std::string line, word;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    int64_t number = 0;
    if (words >> word && word == name && words >> number) {
      return number;
    }
  }
  return 0;
}

void take_smaller(MemoryRoom& room, MemoryRoom other) {
  if (other.bytes < room.bytes) {
    room = std::move(other);
  }
}

// The files of one version of cgroups.
struct CgroupFiles {
  const char* folder;  // below the mount
  const char* limit;
  const char* used;
  const char* reclaimable;  // in memory.stat
};
constexpr CgroupFiles kV2 = {"", "memory.max", "memory.current", "inactive_file"};
constexpr CgroupFiles kV1 = {"/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};

// The group and all that it lies in. In a container the mount may begin at the container's own group, so that the path
// leads nowhere: then the mount itself says what rules.
void look_at_cgroups(MemoryRoom& room, const std::string& mount, const CgroupFiles& files, std::string group) {
  for (;;) {
    if (group == "/") {
      group.clear();
    }
    const std::string folder = mount + files.folder + group;
    const std::optional<int64_t> limit = number_in(folder + "/" + files.limit);
    const std::optional<int64_t> used = number_in(folder + "/" + files.used);
    if (limit && used) {
      const int64_t reclaimable = number_of(folder + "/memory.stat", files.reclaimable);
      take_smaller(room, MachineMemory::room_of(*limit, *used - std::min(*used, reclaimable),
                                                MemoryRoom::Limit::kMachine, files.limit + (" of " + folder)));
    }
    if (group.empty()) {
      return;
    }
    group.resize(group.rfind('/'));
  }
}

void look_at_cgroups(MemoryRoom& room, const std::string& proc, const std::string& mount) {
  std::ifstream file(proc + "/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {  // "0::/jobs/7", or "4:memory:/jobs/7"
    const size_t controllers = line.find(':');
    const size_t group = controllers == std::string::npos ? controllers : line.find(':', controllers + 1);
    if (group == std::string::npos || group + 1 >= line.size() || line[group + 1] != '/') {
      continue;
    }
    const std::string_view names = std::string_view(line).substr(controllers + 1, group - controllers - 1);
    if (names.empty()) {
      look_at_cgroups(room, mount, kV2, line.substr(group + 1));
    } else if (names == "memory") {
      look_at_cgroups(room, mount, kV1, line.substr(group + 1));
    }
  }
}

// Private memory that may be written: malloc's heap, and the blocks that it maps. Not libraries' code. 0 if it is not
// told.
int64_t data_of_process(const std::string& proc) {
  return std::max<int64_t>(number_of(proc + "/self/status", "VmData:"), 0) * kKiB;
}

void look_at_address_space(MemoryRoom& room, const std::string& proc) {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return;
  }
  if (const std::optional<int64_t> pages = number_in(proc + "/self/statm")) {
    // Of libraries, which may be most of it, nothing has to be left alone.
    const int64_t used = *pages * sysconf(_SC_PAGESIZE);
    const int64_t data = data_of_process(proc);
    const int64_t other = data > 0 ? std::max<int64_t>(used - data, 0) : 0;
    take_smaller(room, MachineMemory::room_of(static_cast<int64_t>(limit.rlim_cur) - other, used - other,
                                              MemoryRoom::Limit::kAddressSpace, "RLIMIT_AS"));
  }
}

void look_at_data(MemoryRoom& room, const std::string& proc) {
  rlimit limit{};
  if (getrlimit(RLIMIT_DATA, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return;
  }
  if (const int64_t data = data_of_process(proc); data > 0) {
    take_smaller(room, MachineMemory::room_of(static_cast<int64_t>(limit.rlim_cur), data,
                                              MemoryRoom::Limit::kAddressSpace, "RLIMIT_DATA"));
  }
}

void look_at_machine(MemoryRoom& room, const std::string& proc) {
  const std::string path = proc + "/meminfo";
  const int64_t total = number_of(path, "MemTotal:") * kKiB;
  if (total > 0) {
    const int64_t available = number_of(path, "MemAvailable:") * kKiB;
    take_smaller(room, MachineMemory::room_of(total, total - std::min(total, available), MemoryRoom::Limit::kMachine,
                                              "MemAvailable"));
  }
}

}  // namespace

bool has_address_space_limit_changed() {
  constexpr rlim_t kNotAsked = RLIM_INFINITY - 1;
  static std::atomic<rlim_t> last_of_all{kNotAsked};
  static std::atomic<rlim_t> last_of_data{kNotAsked};
  // Relaxed: a thread that is not told goes by what another one is about to find out.
  const auto has_changed = [](auto resource, std::atomic<rlim_t>& last) {
    rlimit limit{};
    return getrlimit(resource, &limit) == 0 && last.load(std::memory_order_relaxed) != limit.rlim_cur &&
           last.exchange(limit.rlim_cur, std::memory_order_relaxed) != limit.rlim_cur;
  };
  const bool of_all = has_changed(RLIMIT_AS, last_of_all);
  const bool of_data = has_changed(RLIMIT_DATA, last_of_data);
  return of_all || of_data;
}

MemoryRoom MachineMemory::room_of(int64_t limit, int64_t used, MemoryRoom::Limit kind, std::string name) {
  const int64_t reserve = std::clamp(limit / 64, 16 * kMiB, 1024 * kMiB);
  return {.bytes = std::max<int64_t>(0, limit - used - reserve),
          .reserve = std::clamp<int64_t>(limit - used, 0, reserve),
          .lacking = std::max<int64_t>(0, used + reserve - limit),
          .limit = kind,
          .swaps = false,
          .name = std::move(name)};
}

MemoryRoom MachineMemory::room() const {
  MemoryRoom room;
  look_at_cgroups(room, paths_.proc, paths_.cgroup);
  look_at_address_space(room, paths_.proc);
  look_at_data(room, paths_.proc);
  look_at_machine(room, paths_.proc);
  room.swaps = number_of(paths_.proc + "/meminfo", "SwapFree:") > 0;
  return room;
}

}  // namespace ac2::internal
