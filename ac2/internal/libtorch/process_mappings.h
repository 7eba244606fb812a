// The mappings of this process's memory, as the system tells them.
//
//   const std::vector<Mapping> mappings = read_mappings();
//   const Mapping* const mapping = find_mapping(mappings, begin, end);
//   if (mapping != nullptr && mapping->writable) …
//
// Threads: any. Other threads may change the mappings at any time.
#pragma once

#include <cstdint>
#include <vector>

namespace ac2::internal {

struct Mapping {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  bool file = false;  // on a disk
  bool readable = false;
  bool writable = false;
  bool is_private = false;
};

// In the order of their addresses. None where the system does not say.
std::vector<Mapping> read_mappings();
// The mapping that contains all of [begin, end), or null. `mappings` are in the order of their addresses.
const Mapping* find_mapping(const std::vector<Mapping>& mappings, uintptr_t begin, uintptr_t end);

}  // namespace ac2::internal
