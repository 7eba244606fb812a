#include "ac2/internal/planning/copy_schedule.h"

#include <algorithm>

namespace ac2::internal {

void CopySchedule::passes(double cost) {
  if (!entries_.empty() && entries_.back().kind == Entry::kPasses) {
    entries_.back().cost += cost;
  } else {
    entries_.push_back({.kind = Entry::kPasses, .cost = cost});
  }
}

void CopySchedule::leaves(uint32_t value, int64_t bytes) {
  entries_.push_back({.kind = Entry::kLeaves, .value = value, .bytes = bytes});
}

void CopySchedule::comes_back(uint32_t value) {
  entries_.push_back({.kind = Entry::kComesBack, .value = value});
}

void CopySchedule::reads_ahead() {
  if (!entries_.empty() && entries_.back().kind != Entry::kReadsAhead) {
    entries_.push_back({.kind = Entry::kReadsAhead});
  }
}

// One way through the entries.
class CopySchedule::Run {
 public:
  Run(const std::vector<Entry>& entries, const CopySpeedAndWindow& copies) : copies_(copies) {
    uint32_t values = 0;
    for (const Entry& entry : entries) {
      if (entry.kind == Entry::kLeaves || entry.kind == Entry::kComesBack) {
        values = std::max(values, entry.value + 1);
      }
      if (entry.kind == Entry::kComesBack) {
        backs_.push_back({.value = entry.value});
      }
    }
    left_.resize(values);
  }

  double wait() const { return waited_; }
  void pass(double cost) { now_ += cost; }

  void leave(uint32_t value, int64_t bytes) {
    out_free_ = std::max(out_free_, now_) + time_of(bytes);
    left_[value] = {out_free_, bytes};
    leaving_.push_back({out_free_, bytes});
    in_flight_ += bytes;
    settle();
    while (in_flight_ > copies_.in_flight_bytes) {
      wait_until(leaving_.front().done);
      settle();
    }
  }

  void take() {
    next_ = std::max(next_, taken_ + 1);
    Back& back = backs_[taken_++];
    if (back.ahead == 0) {
      start(back);
    }
    wait_until(back.ready);
    ahead_ -= back.ahead;
  }

  void read_ahead() {
    while (next_ < backs_.size()) {
      const int64_t bytes = left_[backs_[next_].value].bytes;
      if (bytes == 0 || ahead_ + bytes > copies_.read_ahead_bytes) {
        return;  // the value has not left yet, or there is no room for it
      }
      start(backs_[next_++]);
    }
  }

 private:
  struct Back {
    uint32_t value = 0;
    double ready = 0;   // when the value is there
    int64_t ahead = 0;  // bytes that are copied back before they are taken
  };

  double time_of(int64_t bytes) const { return static_cast<double>(bytes) / copies_.bytes_per_cost; }

  void wait_until(double time) {
    waited_ += std::max(0.0, time - now_);
    now_ = std::max(now_, time);
  }

  // Copies that are done by now take no device memory any more.
  void settle() {
    while (!leaving_.empty() && leaving_.front().done <= now_) {
      in_flight_ -= leaving_.front().bytes;
      leaving_.pop_front();
    }
  }

  void start(Back& back) {
    const Copy& out = left_[back.value];
    if (out.done > now_) {
      return;  // the value is still there, or has never left
    }
    back_free_ = std::max(back_free_, now_) + time_of(out.bytes);
    back.ready = back_free_;
    back.ahead = out.bytes;
    ahead_ += out.bytes;
  }

  const CopySpeedAndWindow& copies_;
  double now_ = 0, waited_ = 0;
  double out_free_ = 0, back_free_ = 0;
  std::vector<Copy> left_;  // by value
  std::deque<Copy> leaving_;
  int64_t in_flight_ = 0, ahead_ = 0;
  std::vector<Back> backs_;      // in the order in which they are taken
  size_t next_ = 0, taken_ = 0;  // the first one whose copy has not begun, and the first one that is not taken
};

double CopySchedule::wait(const CopySpeedAndWindow& copies) {
  Run run(entries_, copies);
  for (const Entry& entry : entries_) {
    switch (entry.kind) {
      case Entry::kPasses:
        run.pass(entry.cost);
        break;
      case Entry::kLeaves:
        run.leave(entry.value, entry.bytes);
        break;
      case Entry::kComesBack:
        run.take();
        break;
      case Entry::kReadsAhead:
        run.read_ahead();
        break;
    }
  }
  return run.wait();
}

}  // namespace ac2::internal
