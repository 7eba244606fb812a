#include "ac2/internal/budget/budget_limits.h"

#include <algorithm>
#include <limits>

namespace ac2::internal {

namespace {

// After how many replays a limit that cannot be eased is looked at again.
constexpr int64_t kSeldom = 1 << 16;

}  // namespace

BudgetLimits BudgetLimits::without_number(Bound bound) {
  BudgetLimits limits({.bytes = LearnedLimit::kNone, .soft = true});
  limits.learned_.emplace();
  limits.bound_ = bound;
  return limits;
}

bool BudgetLimits::lower(int64_t held, int64_t most) {
  if (held < most / 8 * 7) {
    return false;
  }
  lower_to(std::max<int64_t>(1, held / 4 * 3));
  return true;
}

void BudgetLimits::lower_to(int64_t bytes) {
  lowered_ = std::min(lowered_, bytes);
  add({.bytes = bytes, .soft = ruling().soft});
}

bool BudgetLimits::agree_on(int64_t taught) {
  if (taught >= this->taught()) {
    return false;
  }
  const int64_t before = ruling().bytes;
  if (has_no_number()) {
    learned_->sink_to(taught);
    apply_learned();
  } else {
    lower_to(taught);
  }
  return ruling().bytes != before;
}

int64_t BudgetLimits::least_strict() const {
  const auto strict =
      std::find_if(limits_.begin(), limits_.end(), [](const BudgetLimit& limit) { return !limit.soft; });
  return strict != limits_.end() ? strict->bytes : std::numeric_limits<int64_t>::max();
}

BudgetLimits::Exceeded BudgetLimits::exceed(int64_t held) {
  if (const int64_t strict = least_strict(); strict < held) {
    return {.strict = strict};
  }
  ++times_short_;
  if (has_no_number()) {
    return {};  // the learned limit is a guess
  }
  most_bytes_over_ = std::max(most_bytes_over_, held - ruling().bytes);
  return {.is_first = times_over_++ == 0};
}

bool BudgetLimits::exceed_peak(int64_t bytes) {
  most_bytes_over_ = std::max(most_bytes_over_, bytes);
  return times_over_++ == 0;
}

int64_t BudgetLimits::for_replay(int64_t enough) const {
  return std::min(std::max(enough, eased_.bytes()), least_strict());
}

BudgetLimits::Eased BudgetLimits::ease(int64_t held, bool is_cut) {
  if (!ruling().soft) {
    return {.next = kSeldom, .has_many_replays = !std::exchange(has_many_replays_, true)};
  }
  const bool is_known = ruling().bytes != LearnedLimit::kNone;
  if (!is_known && bound_ == Bound::kMemory) {
    return {.next = kSeldom};  // the memory itself is short
  }
  const int64_t next = eased_.ease(is_known ? ruling().bytes : held, held);
  // Where memory has run out in this step, there is no more.
  if (has_no_number() && !was_short_ && !is_cut) {
    learned_->rise_to(eased_.bytes());
    apply_learned();
  }
  return {.next = next};
}

bool BudgetLimits::ran_out(const Shortage& shortage) {
  if (!std::exchange(was_short_, true)) {
    least_of_step_ = std::max<int64_t>(shortage.held / 4 * (shortage.frees_accelerator ? 2 : 3), 1);
  }
  const bool knew_none = learned_->bytes() == LearnedLimit::kNone;
  if (!shortage.is_guess && !has_several_devices_) {
    learned_->ran_out(
        {.held = shortage.held, .most_held = shortage.most_held, .freed = shortage.freed, .least = least_of_step_});
  }
  apply_learned();
  return !shortage.is_guess && knew_none && learned_->bytes() != LearnedLimit::kNone;
}

void BudgetLimits::apply_learned() {
  remove(learned_limit_);
  learned_limit_.bytes = learned_->bytes();
  add(learned_limit_);
}

void BudgetLimits::backward_ended(int graph_task, std::optional<int64_t> spare, int64_t most_held) {
  const bool is_limited = most_held >= learned_->bytes() / 8 * 7;
  learned_->backward_ended(graph_task, spare && !is_limited ? 0 : spare,
                           {.replays = std::exchange(replays_of_step_, 0), .bytes = eased_.size()});
  was_short_ = false;
  apply_learned();
}

void BudgetLimits::start_anew() {
  learned_->start_anew();
  has_several_devices_ = false;
  apply_learned();
}

}  // namespace ac2::internal
