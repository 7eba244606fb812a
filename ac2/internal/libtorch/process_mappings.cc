#include "ac2/internal/libtorch/process_mappings.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

namespace ac2::internal {

namespace {

// False for memory that processes share, and for memory without a file.
bool is_file_on_disk(const std::string& path, uint64_t inode) {
  return inode != 0 && !path.starts_with("/dev/") && !path.starts_with("/memfd:") && !path.starts_with("/SYSV");
}

}  // namespace

std::vector<Mapping> read_mappings() {
  std::vector<Mapping> mappings;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    // 7f10a4000000-7f10a4021000 rw-p 00000000 08:01 1048602    /home/me/weights.bin
    Mapping mapping;
    std::array<char, 8> permissions{};
    uint64_t inode = 0;
    int path = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %4s %*s %*s %" SCNu64 " %n", &mapping.begin, &mapping.end,
                    permissions.data(), &inode, &path) < 4) {
      continue;
    }
    mapping.file = is_file_on_disk(line.substr(path), inode);
    mapping.readable = permissions[0] == 'r';
    mapping.writable = permissions[1] == 'w';
    mapping.is_private = permissions[3] == 'p';
    mappings.push_back(mapping);
  }
  return mappings;
}

const Mapping* find_mapping(const std::vector<Mapping>& mappings, uintptr_t begin, uintptr_t end) {
  const auto after =
      std::upper_bound(mappings.begin(), mappings.end(), begin,
                       [](uintptr_t address, const Mapping& mapping) { return address < mapping.begin; });
  if (after == mappings.begin() || std::prev(after)->end < end) {
    return nullptr;
  }
  return &*std::prev(after);
}

}  // namespace ac2::internal
