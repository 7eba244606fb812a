#include "examples/progress.h"

#include <algorithm>
#include <cmath>

namespace gpt {
namespace {

std::string two_digits(int64_t value) {
  return (value < 10 ? "0" : "") + std::to_string(value);
}

}  // namespace

Progress::Progress(std::ostream& out, int64_t steps, bool live) : out_(out), steps_(steps), live_(live) {}

void Progress::update(int64_t steps_done, const std::string& details) {
  const auto now = Clock::now();
  const double step = std::chrono::duration<double>(now - last_step_).count();
  last_step_ = now;
  // Of the last fifty steps or so: the first ones warm up, and machines get busy and idle.
  const double weight = std::max(0.02, 1.0 / static_cast<double>(steps_done));
  seconds_per_step_ += weight * (step - seconds_per_step_);
  const bool at_end = steps_done == steps_;
  const int64_t interval = std::max<int64_t>(1, steps_ / 20);
  const bool due = live_ ? now - last_print_ >= std::chrono::milliseconds(100) : steps_done % interval == 0;
  if (!due && steps_done != 1 && !at_end) return;
  last_print_ = now;

  const double elapsed = std::chrono::duration<double>(now - start_).count();
  const double left = seconds_per_step_ * static_cast<double>(steps_ - steps_done);
  std::string line = "step " + std::to_string(steps_done) + "/" + std::to_string(steps_) + "  " + details + "  " +
                     (at_end ? clock_time(elapsed) + " in all" : clock_time(left) + " left");
  const size_t length = line.size();
  if (live_) {
    // Over the rest of a longer line before it.
    line.append(last_length_ > length ? last_length_ - length : 0, ' ');
    line.insert(0, 1, '\r');
  }
  last_length_ = length;
  out_ << line;
  if (!live_ || at_end) out_ << '\n';
  out_.flush();
}

std::string clock_time(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(std::max(0.0, seconds)));
  const int64_t minutes = whole / 60 % 60;
  const std::string tail = ":" + two_digits(whole % 60);
  return whole >= 3600 ? std::to_string(whole / 3600) + ":" + two_digits(minutes) + tail
                       : std::to_string(minutes) + tail;
}

}  // namespace gpt
