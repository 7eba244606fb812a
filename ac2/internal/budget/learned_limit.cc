#include "ac2/internal/budget/learned_limit.h"

#include <algorithm>

namespace ac2::internal {

void LearnedLimit::ran_out(const Shortage& shortage) {
  quiet_ = 0;
  part_ = kSmallestPart;
  if (is_attempt_) {
    is_attempt_ = false;
    constexpr int64_t kMostPatience = int64_t{1} << 30;
    patience_ = std::min(2 * patience_, kMostPatience);
  }
  if (shortage.held >= std::min(shortage.most_held, bytes_) / 8 * 7) {
    bytes_ = std::clamp<int64_t>(shortage.held - shortage.freed, 1, bytes_);
  }
}

void LearnedLimit::backward_ended(int graph_task) {
  if (graph_task == last_backward_) {
    return;
  }
  last_backward_ = graph_task;
  if (bytes_ == kNone || ++quiet_ < patience_) {
    return;
  }
  quiet_ = 0;
  is_attempt_ = true;
  bytes_ = bytes_ < kNone / 2 ? bytes_ + std::max<int64_t>(bytes_ / part_, 1) : kNone;
  part_ = std::max<int64_t>(part_ / 2, 1);
}

}  // namespace ac2::internal
