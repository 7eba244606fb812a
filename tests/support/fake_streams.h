// Streams and events of the fake accelerator: work queued there runs late, and whether two pieces of work are ordered
// is known whatever order they run in.
//
// Late: queued work runs only where something is ordered after it: computing on a stream runs what is queued there and
// what that waits for, and nothing else. Asking an event makes a little progress at times; a seed decides when.
//
// Ordered: each stream has a vector clock (Fidge 1988, Mattern 1989). Recording an event copies the clock, waiting for
// it joins it; so does the host's clock when it synchronises, or learns that an event has happened. Time plays no part.
//
// Timed: what is queued takes the milliseconds that it is said to take, so that the time between events can be asked.
//
// Not thread-safe: FakeAccelerator's mutex guards it.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <random>

namespace ac2::test {

// The default one, 0, and those of the pool.
inline constexpr int kFakeStreams = 6;
// By stream: how much of its work is known to be done.
using FakeClock = std::array<uint64_t, kFakeStreams>;

struct FakeEvent {
  int stream = -1;
  uint64_t position = 0;  // in the stream's queue
  FakeClock clock{};
  double milliseconds = 0;
};

class FakeStreams {
 public:
  // Nothing may be queued. With seed 0 asking an event never makes progress.
  void set_seed(uint64_t seed);

  // A new piece of work on `stream`, after all that is queued there: its time on the stream's own clock.
  uint64_t next_time(int stream);
  // The clocks of the work that comes before work queued on `stream` now, and before the host's next step.
  const FakeClock& clock(int stream) const { return streams_[stream].clock; }
  const FakeClock& host() const { return host_; }

  void queue(int stream, std::function<void()> work);
  // The work that was queued on `stream` last takes so long.
  void spend(int stream, double milliseconds) { streams_[stream].milliseconds += milliseconds; }
  // Runs all that is queued on `stream`, and what that waits for.
  void catch_up(int stream) { run_to(stream, streams_[stream].queued); }
  bool is_idle(int stream) const { return streams_[stream].done == streams_[stream].queued; }
  // Pieces of work that have not run, waits not counted.
  int64_t pending() const { return pending_; }

  void record(FakeEvent& event, int stream);
  void wait(const FakeEvent& event, int stream);
  bool has_happened(const FakeEvent& event);
  void synchronize(const FakeEvent& event);
  void synchronize(int stream);

 private:
  struct Item {
    std::function<void()> work{};  // or, if empty, a wait for
    int stream = -1;
    uint64_t position = 0;
  };
  struct Stream {
    std::deque<Item> items;
    uint64_t queued = 0;
    uint64_t done = 0;
    FakeClock clock{};
    double milliseconds = 0;
  };

  void run_to(int stream, uint64_t position);

  std::array<Stream, kFakeStreams> streams_;
  FakeClock host_{};
  int64_t pending_ = 0;
  uint64_t seed_ = 0;
  std::mt19937_64 random_;
};

}  // namespace ac2::test
