// The time that threads spend on one kind of work, such as the replays of a tape.
//
//   const SpentTime::Span span(tape.replay_time());   // to the end of the scope
//   tape.replay_time().nanoseconds();
//
// A span inside of another one of its thread counts nothing, whosever time that is: a replay whose allocation drops
// values is a replay. So times of several kinds may be added up. Of several threads the times add up too, to more than
// a clock on the wall would show. Kernels of an accelerator that still run at the end of a span are not counted.
//
// Cost: two looks at the clock for a span.
//
// Threads: any.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>

namespace ac2::internal {

class SpentTime {
 public:
  // Of the steady clock.
  static int64_t now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  class Span {
   public:
    explicit Span(SpentTime& time) : time_(time), begun_(open_spans_++ == 0 ? now() : kNever) {}
    ~Span() {
      --open_spans_;
      if (begun_ != kNever) {
        time_.add(begun_, now());
      }
    }
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    static inline constinit thread_local int open_spans_ = 0;
    SpentTime& time_;
    const int64_t begun_;
  };

  int64_t nanoseconds() const { return sum_.load(std::memory_order_relaxed); }
  // When the first span that counts began; kNever: there was none yet.
  int64_t first() const { return first_.load(std::memory_order_relaxed); }
  // Some of the work was queued on an accelerator, whose time is not in the sum.
  void note_queued() { has_queued_.store(true, std::memory_order_relaxed); }
  bool has_queued() const { return has_queued_.load(std::memory_order_relaxed); }

 private:
  void add(int64_t begun, int64_t ended) {
    sum_.fetch_add(ended - begun, std::memory_order_relaxed);
    int64_t first = first_.load(std::memory_order_relaxed);
    while (begun < first && !first_.compare_exchange_weak(first, begun, std::memory_order_relaxed)) {
    }
  }

  std::atomic<int64_t> sum_{0};
  std::atomic<int64_t> first_{kNever};
  std::atomic<bool> has_queued_{false};
};

}  // namespace ac2::internal
