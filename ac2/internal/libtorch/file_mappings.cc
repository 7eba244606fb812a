#include "ac2/internal/libtorch/file_mappings.h"

#include <c10/util/intrusive_ptr.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "ac2/internal/locks/fork_locks.h"
#include "ac2/internal/locks/mutex.h"

namespace ac2::internal {

namespace {

struct Mapping {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  bool file = false;  // on a disk
  bool writable = false;
  bool is_private = false;
};

// False for memory that processes share, and for memory without a file.
bool is_file_on_disk(const std::string& path, uint64_t inode) {
  return inode != 0 && !path.starts_with("/dev/") && !path.starts_with("/memfd:") && !path.starts_with("/SYSV");
}

// The mappings of this process, in the order of their addresses.
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
    mapping.writable = permissions[1] == 'w';
    mapping.is_private = permissions[3] == 'p';
    mappings.push_back(mapping);
  }
  return mappings;
}

// The list of mappings as it was read last. Mappings may have been replaced since.
class LastMappings {
 public:
  // The mapping that contains all of [begin, end), or null.
  const Mapping* find(uintptr_t begin, uintptr_t end) const {
    auto after = std::upper_bound(mappings_.begin(), mappings_.end(), begin,
                                  [](uintptr_t address, const Mapping& mapping) { return address < mapping.begin; });
    if (after == mappings_.begin() || std::prev(after)->end < end) {
      return nullptr;
    }
    return &*std::prev(after);
  }
  void read() { mappings_ = read_mappings(); }

 private:
  std::vector<Mapping> mappings_;
};

bool stays(const Mapping* mapping, const void* data, bool may_be_written) {
  if (mapping == nullptr || !mapping->file) {
    return false;
  }
  if (!mapping->writable) {
    return true;
  }
  Dl_info library;
  return !may_be_written && mapping->is_private && dladdr(data, &library) == 0;
}

// The answers for storages that were asked about.
class KnownStorages {
 public:
  std::optional<bool> stays(const c10::StorageImpl* storage, const void* data) const {
    const auto known = storages_.find(storage);
    return known != storages_.end() && known->second.data == data ? std::optional(known->second.stays) : std::nullopt;
  }
  void add(c10::StorageImpl* storage, const void* data, bool stays) {
    if (storages_.size() >= sweep_at_) {
      std::erase_if(storages_, [](const auto& entry) { return entry.second.storage.expired(); });
      sweep_at_ = std::max(kLeastSwept, 2 * storages_.size());
    }
    storages_.insert_or_assign(
        storage,
        Known{data, stays,
              c10::weak_intrusive_ptr<c10::StorageImpl>(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage))});
  }

 private:
  struct Known {
    const void* data;
    bool stays;
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // keeps the address from being another storage's
  };
  static constexpr size_t kLeastSwept = 64;

  std::unordered_map<const c10::StorageImpl*, Known> storages_;
  size_t sweep_at_ = kLeastSwept;
};

// Smaller storages are looked up in the list that was read last. If the list is out of date, a file that stays may be
// taken for other memory, and each op then copies at most this many bytes. Reading the list for each would cost more.
constexpr size_t kLittle = size_t{64} << 10;

}  // namespace

bool is_file_that_stays(c10::StorageImpl& storage, bool may_be_written) {
  // Leaked: tensors with static lifetime may be asked about after main().
  static auto& mutex = ForkLocks::make_last();
  static auto* last ABSL_PT_GUARDED_BY(mutex) = new LastMappings;
  static auto* known ABSL_PT_GUARDED_BY(mutex) = new KnownStorages;
  const void* data = storage._mutable_data_ptr_no_checks().get();
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const uintptr_t end = begin + storage.nbytes();
  const MutexLock lock(mutex);
  if (const std::optional<bool> before = known->stays(&storage, data)) {
    return *before;
  }
  // The old list may give the answer false for a small storage. The answer true always comes from a new list.
  const Mapping* before = storage.nbytes() < kLittle ? last->find(begin, end) : nullptr;
  if (before != nullptr && !stays(before, data, may_be_written)) {
    return false;
  }
  last->read();
  const bool now = stays(last->find(begin, end), data, may_be_written);
  known->add(&storage, data, now);
  return now;
}

}  // namespace ac2::internal
