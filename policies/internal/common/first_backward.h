// A FirstBackward notes what a policy has seen by the end of the first backward after its regions, and warns once if
// that came to nothing.
//
// A step with several regions is seen as a whole. While a region of the policy's is open, nothing is said: a backward
// inside of it has not seen the rest. A FirstBackward lives until then by itself: most programs give a policy to a
// scope and keep none.
//
// Threads: a policy may be entered on many at once. `mutex_` guards what a subclass has seen.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "ac2/internal/locks/mutex.h"

namespace ac2::policies::internal {

class FirstBackward : public std::enable_shared_from_this<FirstBackward> {
 public:
  FirstBackward() = default;
  virtual ~FirstBackward() = default;
  FirstBackward(const FirstBackward&) = delete;
  FirstBackward& operator=(const FirstBackward&) = delete;

  void region_begins();
  void region_ends();
  // Enough has come, or has been said.
  bool is_over() const { return is_over_.load(std::memory_order_relaxed); }

 protected:
  // What to warn of; empty if there is nothing.
  virtual std::string complaint() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  void end() { is_over_.store(true, std::memory_order_relaxed); }

  ac2::internal::Mutex mutex_;

 private:
  // False while a region of the policy's is open.
  bool tell();

  std::atomic<bool> is_over_{false};  // relaxed: a look that comes too late is made with the lock
  int64_t open_ ABSL_GUARDED_BY(mutex_) = 0;
  bool waits_ ABSL_GUARDED_BY(mutex_) = false;
};

// A region that has entered the policy.
template <class Seen>
class WatchedRegion {
 public:
  explicit WatchedRegion(std::shared_ptr<Seen> seen) : seen_(std::move(seen)) { seen_->region_begins(); }
  ~WatchedRegion() { seen_->region_ends(); }
  WatchedRegion(const WatchedRegion&) = delete;
  WatchedRegion& operator=(const WatchedRegion&) = delete;

  Seen& seen() const { return *seen_; }

 private:
  const std::shared_ptr<Seen> seen_;
};

// "a", "b", and 3 more
template <class Names>
std::string list_of(const Names& names) {
  constexpr size_t kMostNamed = 12;
  std::string text;
  size_t shown = 0;
  for (const std::string& name : names) {
    text += text.empty() ? "" : ", ";
    if (shown == kMostNamed) {
      return text + "and " + std::to_string(names.size() - kMostNamed) + " more";
    }
    text += '"' + name + '"';
    ++shown;
  }
  return text;
}

}  // namespace ac2::policies::internal
