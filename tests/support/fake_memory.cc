#include "tests/support/fake_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ac2::test {

namespace {

constexpr size_t kAlignment = 64;
constexpr int kPoison = 0xff;  // NaN in every floating-point type

std::string on(int stream) {
  return "stream " + std::to_string(stream);
}

}  // namespace

FakeMemory::Block* FakeMemory::find(const void* data) {
  const auto* address = static_cast<const char*>(data);
  auto it = blocks_.upper_bound(address);
  if (it == blocks_.begin()) return nullptr;
  --it;
  return address < it->first + it->second.capacity ? &it->second : nullptr;
}

void* FakeMemory::allocate(Kind kind, size_t bytes, int stream) {
  release_deferred();
  Sum& sum = sums_[index(kind)];
  if (kind == Kind::kPinned && sum.bytes + static_cast<int64_t>(bytes) > pinned_limit_) return nullptr;
  if (kind == Kind::kDevice) {
    ++device_allocations_;
    if (until_limit_ >= 0 && until_limit_-- == 0) device_limit_ = sum.bytes;
    if (sum.bytes + static_cast<int64_t>(bytes) > device_limit_) return nullptr;
    if (left_ >= 0 && left_-- == 0) return nullptr;
  }
  const size_t capacity = std::max<size_t>(1, (bytes + kAlignment - 1) / kAlignment) * kAlignment;
  const auto reused = std::find_if(free_.rbegin(), free_.rend(), [&](const char* data) {
    const Block& block = blocks_.at(data);
    return block.kind == kind && block.capacity == capacity && (kind == Kind::kPinned || block.stream == stream);
  });
  char* data = nullptr;
  if (reused != free_.rend()) {
    data = *reused;
    free_.erase(std::next(reused).base());
  } else {
    Block block{.storage = std::make_unique<char[]>(capacity), .kind = kind, .capacity = capacity, .stream = stream};
    data = block.storage.get();
    std::memset(data, kPoison, capacity);
    blocks_.emplace(data, std::move(block));
  }
  Block& block = blocks_.at(data);
  block.bytes = bytes;
  block.in_use = true;
  sum.bytes += static_cast<int64_t>(bytes);
  sum.peak = std::max(sum.peak, sum.bytes);
  sum.allocated += static_cast<int64_t>(bytes);
  return data;
}

void FakeMemory::free(void* data) {
  Block& block = *find(data);
  if (!block.recorded.empty()) {
    Deferred deferred{.data = static_cast<char*>(data)};
    for (const int stream : block.recorded) {
      streams_.record(deferred.until.emplace_back(), stream);
    }
    block.recorded.clear();
    deferred_.push_back(std::move(deferred));
    return;
  }
  if (block.kind == Kind::kPinned) {
    check_after_write(block, streams_.host(), "pinned memory was freed");
    check_after_reads(block, streams_.host(), "pinned memory was freed");
  } else {
    // The next owner of the memory works on it in the stream's order.
    streams_.catch_up(block.stream);
    streams_.next_time(block.stream);
    check_after_write(block, streams_.clock(block.stream), "memory of " + on(block.stream) + " was freed");
    check_after_reads(block, streams_.clock(block.stream), "memory of " + on(block.stream) + " was freed");
    block.write = {block.stream, streams_.clock(block.stream)[block.stream]};
  }
  release(static_cast<char*>(data), block);
}

void FakeMemory::release(char* data, Block& block) {
  std::memset(data, kPoison, block.capacity);
  block.in_use = false;
  sums_[index(block.kind)].bytes -= static_cast<int64_t>(block.bytes);
  free_.push_back(data);
}

void FakeMemory::release_deferred() {
  const auto has_happened = [&](const Deferred& deferred) {
    return std::all_of(deferred.until.begin(), deferred.until.end(),
                       [&](const FakeEvent& event) { return streams_.has_happened(event); });
  };
  std::vector<Deferred> waiting;
  for (Deferred& deferred : std::exchange(deferred_, {})) {
    if (has_happened(deferred)) {
      release(deferred.data, *find(deferred.data));
    } else {
      waiting.push_back(std::move(deferred));
    }
  }
  deferred_ = std::move(waiting);
}

void FakeMemory::record_stream(void* data, int stream) {
  Block* block = find(data);
  if (block != nullptr && block->stream != stream) block->recorded.push_back(stream);
}

void FakeMemory::read(const void* data, int stream) {
  Block* block = find(data);
  if (block == nullptr) return;
  const std::string what = on(stream) + " reads";
  if (!block->in_use) errors_.push_back(what + " freed memory");
  check_after_write(*block, streams_.clock(stream), what);
  block->reads[stream] = streams_.clock(stream)[stream];
}

void FakeMemory::write(const void* data, int stream) {
  Block* block = find(data);
  if (block == nullptr) return;
  const std::string what = on(stream) + " writes";
  if (!block->in_use) errors_.push_back(what + " freed memory");
  check_after_write(*block, streams_.clock(stream), what);
  check_after_reads(*block, streams_.clock(stream), what);
  block->write = {stream, streams_.clock(stream)[stream]};
}

void FakeMemory::host_reads(const void* data) {
  if (const Block* block = find(data)) check_after_write(*block, streams_.host(), "the host reads");
}

void FakeMemory::check_after_write(const Block& block, const FakeClock& clock, const std::string& what) {
  if (block.write.stream >= 0 && block.write.time > clock[block.write.stream]) {
    errors_.push_back(what + " without waiting for a write on " + on(block.write.stream));
  }
}

void FakeMemory::check_after_reads(const Block& block, const FakeClock& clock, const std::string& what) {
  for (int stream = 0; stream < kFakeStreams; ++stream) {
    if (block.reads[stream] > clock[stream]) {
      errors_.push_back(what + " without waiting for a read on " + on(stream));
    }
  }
}

bool FakeMemory::is_pinned(const void* data) {
  const Block* block = find(data);
  return block != nullptr && block->kind == Kind::kPinned;
}

void FakeMemory::reset_peaks() {
  for (Sum& sum : sums_) sum.peak = sum.bytes;
}

std::vector<std::string> FakeMemory::take_errors() {
  return std::exchange(errors_, {});
}

}  // namespace ac2::test
