// How long a step waits for copies to the host's memory and back, as far as they do not fit beside its ops.
//
//   CopySchedule schedule;
//   schedule.passes(cost);           // an op runs, of forward, of backward or again
//   schedule.leaves(value, bytes);   // a copy to the host may begin
//   schedule.comes_back(value);      // an op takes the value
//   schedule.reads_ahead();          // backward has taken a value, and copies for later ones may begin
//   const double waited = schedule.wait({.bytes_per_cost = 25, .in_flight_bytes = …, .read_ahead_bytes = …});
//
// The model is that of the library's offloading (OffloadOptions):
//
// - One queue copies to the host and another one back. Each takes one copy after the other, at the same speed.
// - A copy to the host begins when the value leaves and those before it are done. While more than in_flight_bytes are
//   on their way, the step waits for the oldest.
// - Copies back are queued in the order in which the values are taken, whenever backward has taken a value, copied or
//   not. Those whose values are not taken yet have at most read_ahead_bytes. The op that takes a value waits for its
//   copy.
// - A value that is taken before its copy to the host is done is used where it is.
//
// wait() takes O(entries). Threads: not thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

namespace ac2::internal {

struct CopySpeedAndWindow {
  double bytes_per_cost = 0;  // in each direction, in the time that ops of cost 1 take
  int64_t in_flight_bytes = 0;
  int64_t read_ahead_bytes = 0;
};

class CopySchedule {
 public:
  void clear() { entries_.clear(); }
  void passes(double cost);
  void leaves(uint32_t value, int64_t bytes);
  void comes_back(uint32_t value);
  void reads_ahead();
  double wait(const CopySpeedAndWindow& copies);

 private:
  struct Entry {
    enum Kind : uint8_t { kPasses, kLeaves, kComesBack, kReadsAhead };
    Kind kind = kPasses;
    uint32_t value = 0;
    double cost = 0;
    int64_t bytes = 0;  // of kLeaves
  };
  struct Copy {
    double done = 0;
    int64_t bytes = 0;
  };
  class Run;

  std::vector<Entry> entries_;
};

}  // namespace ac2::internal
