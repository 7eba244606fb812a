// One line about a running loop: rewritten in place on a terminal, and printed at intervals into a file or pipe.
#pragma once

#include <chrono>
#include <cstdint>
#include <ostream>
#include <string>

namespace gpt {

class Progress {
 public:
  // `live`: the stream is a terminal.
  Progress(std::ostream& out, int64_t steps, bool live);
  // After a step: "step 12/500  <details>  1:03 left". Prints on a terminal at most ten times a second, elsewhere about
  // twenty times in all; always the first and the last step.
  void update(int64_t steps_done, const std::string& details);

 private:
  using Clock = std::chrono::steady_clock;

  std::ostream& out_;
  int64_t steps_;
  bool live_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_step_ = start_;
  Clock::time_point last_print_{};
  double seconds_per_step_ = 0;
  size_t last_length_ = 0;
};

// "1:03", or "2:05:59"
std::string clock_time(double seconds);

}  // namespace gpt
