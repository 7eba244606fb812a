// Memory of the fake accelerator, its own and the pinned one of its host: bytes of the CPU in which every wrong order
// of accesses shows.
//
// Freed memory is filled with NaNs and is the first to be allocated again, as by a caching allocator. Device memory
// belongs to the stream that was current when it was allocated, and is free in that stream's order: freeing counts as a
// write of that stream. Every access is checked against those of other streams.
//
// Not thread-safe: FakeAccelerator's mutex guards it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/fake_streams.h"

namespace ac2::test {

class FakeMemory {
 public:
  enum class Kind : uint8_t { kDevice, kPinned };

  explicit FakeMemory(FakeStreams& streams) : streams_(streams) {}

  // Null if it would be more than the limit, or is to fail. The same allocation tried again is one more.
  void* allocate(Kind kind, size_t bytes, int stream);
  void free(void* data);
  // Frees what was recorded on streams that are done with it by now.
  void release_deferred();
  // `data` is in use on `stream` too: it is not free before what is queued there when it is freed has run.
  void record_stream(void* data, int stream);

  // By a piece of work on `stream` whose time is the stream's latest. `data` may be anywhere; other memory is not
  // checked.
  void read(const void* data, int stream);
  void write(const void* data, int stream);
  // By the host itself.
  void host_reads(const void* data);

  bool is_pinned(const void* data);
  int64_t bytes(Kind kind) const { return sums_[index(kind)].bytes; }
  int64_t peak_bytes(Kind kind) const { return sums_[index(kind)].peak; }
  int64_t allocated_bytes(Kind kind) const { return sums_[index(kind)].allocated; }  // by all allocations so far
  void reset_peaks();
  void limit_pinned(int64_t bytes) { pinned_limit_ = bytes; }
  // The allocation on the device after `count` more fails; those after it succeed again. Negative: none does.
  void fail_after(int64_t count) { left_ = count; }
  // After `count` more allocations on the device there is no more of it than is in use then. Negative: there is.
  void last_allocation_after(int64_t count) {
    until_limit_ = count;
    device_limit_ = std::numeric_limits<int64_t>::max();
  }
  void limit_device(int64_t bytes) { device_limit_ = bytes; }
  int64_t device_allocations() const { return device_allocations_; }
  // The errors since the last call.
  std::vector<std::string> take_errors();

 private:
  struct Access {
    int stream = -1;
    uint64_t time = 0;
  };
  struct Block {
    std::unique_ptr<char[]> storage{};
    Kind kind = Kind::kDevice;
    size_t capacity = 0;
    size_t bytes = 0;  // asked for
    int stream = 0;
    bool in_use = false;
    Access write{};
    std::array<uint64_t, kFakeStreams> reads{};
    std::vector<int> recorded{};
  };
  // Freed while other streams used it.
  struct Deferred {
    char* data = nullptr;
    std::vector<FakeEvent> until{};
  };
  struct Sum {
    int64_t bytes = 0;
    int64_t peak = 0;
    int64_t allocated = 0;
  };

  static size_t index(Kind kind) { return static_cast<size_t>(kind); }
  Block* find(const void* data);
  void check_after_write(const Block& block, const FakeClock& clock, const std::string& what);
  void check_after_reads(const Block& block, const FakeClock& clock, const std::string& what);
  void release(char* data, Block& block);
  FakeStreams& streams_;
  std::map<const char*, Block> blocks_;  // by address
  std::vector<char*> free_;              // the last one freed is the last
  std::vector<Deferred> deferred_;
  std::array<Sum, 2> sums_{};
  int64_t pinned_limit_ = std::numeric_limits<int64_t>::max();
  int64_t left_ = -1;
  int64_t device_limit_ = std::numeric_limits<int64_t>::max();
  int64_t until_limit_ = -1;
  int64_t device_allocations_ = 0;
  std::vector<std::string> errors_;
};

}  // namespace ac2::test
