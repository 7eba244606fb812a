#include "ac2/internal/budget/learned_limit.h"

#include <algorithm>

namespace ac2::internal {

void LearnedLimit::ran_out(const Shortage& shortage) {
  quiet_ = 0;
  part_ = kSmallestPart;
  most_held_ = std::max(most_held_, shortage.held);
  int64_t least = shortage.least;
  if (is_attempt_) {
    is_attempt_ = false;
    constexpr int64_t kMostPatience = int64_t{1} << 30;
    patience_ = std::min(2 * patience_, kMostPatience);
    least = std::max(least, before_attempt_);
  }
  if (repeats_ > 0) {
    return;  // the best step has run out of memory too
  }
  if (shortage.held >= std::min(shortage.most_held, bytes_) / 8 * 7) {
    bytes_ = std::clamp(shortage.held - shortage.freed, std::min(least, bytes_), bytes_);
  }
}

void LearnedLimit::backward_ended(int graph_task, std::optional<int64_t> spare, const Step& step) {
  if (graph_task == last_backward_) {
    return;
  }
  last_backward_ = graph_task;
  ++backwards_;
  if (!spare) {
    compare(step);
  }
  if (bytes_ != kNone) {
    ++quiet_;
    rise(spare);
  }
  begun_with_ = bytes_;
}

void LearnedLimit::rise(std::optional<int64_t> spare) {
  if (spare) {
    if (quiet_ >= patience_ / 4 && *spare / 2 >= most_held_ / kSmallestRise) {
      attempt(*spare / 2);
    }
  } else if (quiet_ >= patience_) {
    attempt(std::max<int64_t>(bytes_ / part_, 1));
    part_ = std::max<int64_t>(part_ / 2, 1);
  }
}

bool LearnedLimit::is_like_best(const Step& step) const {
  return best_ && step.bytes >= best_->bytes / 8 * 7 && best_->bytes >= step.bytes / 8 * 7;
}

void LearnedLimit::compare(const Step& step) {
  constexpr int64_t kFew = 32;  // more replays than that are worth a thought
  if (step.replays == 0) {
    return;
  }
  if (!is_like_best(step)) {
    best_ = step;
    best_begun_with_ = begun_with_;
    repeats_ = 0;
    return;
  }
  if (repeats_ > 0) {
    --repeats_;
    best_->replays = step.replays;
    bytes_ = std::max(bytes_, best_begun_with_);
  } else if (step.replays <= best_->replays) {
    best_ = step;
    best_begun_with_ = begun_with_;
  } else if (step.replays > best_->replays / 4 * 5 + kFew) {
    repeats_ = most_repeats_;
    constexpr int64_t kMostRepeats = int64_t{1} << 30;
    most_repeats_ = std::min(2 * most_repeats_, kMostRepeats);
    bytes_ = std::max(bytes_, best_begun_with_);
  }
}

void LearnedLimit::attempt(int64_t more) {
  quiet_ = 0;
  is_attempt_ = true;
  before_attempt_ = bytes_;
  bytes_ = bytes_ < kNone - more ? bytes_ + more : kNone;
}

}  // namespace ac2::internal
