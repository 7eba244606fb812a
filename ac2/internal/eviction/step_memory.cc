#include "ac2/internal/eviction/step_memory.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "ac2/internal/eviction/evictor.h"
#include "ac2/internal/eviction/indirect_use.h"

namespace ac2::internal {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr uint64_t kTakenSignature = 0x9e3779b97f4a7c15ULL;  // in the signature of a value's being taken

}  // namespace

StepMemory::StepMemory(Evictor& evictor, StepStore& store, Wants wants)
    : evictor_(evictor), store_(store), wants_(wants), now_(std::make_unique<RememberedStep>()) {}

void StepMemory::step_ended() {
  if (now_->ops() == 0) {
    return;
  }
  StepStore::Outcome outcome{
      .budget = evictor_.budget(), .replayed_cost = replayed_cost_, .given_up = given_up_, .similar = known_};
  if (has_chosen_ && is_one_setting_) {
    outcome.setting = setting_;
  }
  const bool repeated = is_found_ && place_ + 1 == known_->ops() && place_ + 1 == now_->ops();
  if (is_trying_ && !repeated) {
    pause_ = pause_length_;
    pause_length_ = std::min(kLongestPause, 2 * pause_length_);
  } else {
    pause_ = std::max(0, pause_ - 1);
    pause_length_ = repeated ? 1 : pause_length_;
  }
  last_ = store_.ended(std::move(now_), outcome);
  begin_step();
}

void StepMemory::step_failed() {
  if (is_trying_) {
    store_.failed(*known_, setting_, evictor_.budget());
  }
  begin_step();
}

void StepMemory::begin_step() {
  now_ = std::make_unique<RememberedStep>();
  std::fill(origins_.begin(), origins_.end(), Origin());
  std::fill(op_of_.begin(), op_of_.end(), kNone);
  places_.clear();
  known_ = last_;
  place_ = kNone;
  is_found_ = false;
  ops_known_ = 0;
  times_found_ = 0;
  has_chosen_ = false;
  use_setting({});
  look_at_names();
  is_one_setting_ = true;
  is_trying_ = false;
  bound_ = RuleTrials::kNoBound;
  replayed_cost_ = 0;
  given_up_.reset();
}

// --- what the program does -------------------------------------------------------------------------------------------

void StepMemory::ran(uint64_t signature, double cost, absl::Span<const ValueId> inputs) {
  if (now_->ops() > StepStore::kMostOps) {
    if (std::exchange(is_found_, false)) {
      use_setting({});
      look_at_names();
    }
    return;
  }
  now_->add_op(signature, cost);
  for (const ValueId input : inputs) {
    if (input < origins_.size() && origins_[input].op != kNone) {
      now_->add_use(now_->first_result(origins_[input].op) + origins_[input].result);
    }
  }
  places_.push_back(kNone);
  follow();
  if (is_found_) {
    places_.back() = place_;
    ++ops_known_;
    for (const ValueId input : inputs) {
      ignore_names_if_done(input);
    }
  }
}

void StepMemory::took(ValueId value) {
  uint64_t signature = kTakenSignature;
  double cost = 0;
  if (value < origins_.size() && origins_[value].op != kNone) {
    signature ^= now_->signature(origins_[value].op) + origins_[value].result;
    cost = now_->cost(origins_[value].op);
  }
  ran(signature, cost, absl::MakeConstSpan(&value, 1));
}

void StepMemory::made(NodeId node, ValueId result) {
  if (now_->ops() == 0 || now_->ops() > StepStore::kMostOps) {
    return;
  }
  if (result >= origins_.size()) {
    origins_.resize(result + 1);
  }
  if (node >= op_of_.size()) {
    op_of_.resize(node + 1, kNone);
  }
  const uint32_t op = now_->ops() - 1;
  origins_[result] = {op, now_->results() - now_->first_result(op)};
  op_of_[node] = op;
  now_->add_result();
  ignore_names_if_done(result);
}

void StepMemory::forget(ValueId value) {
  if (value < origins_.size()) {
    origins_[value] = {};
  }
}

void StepMemory::follow() {
  const uint32_t op = now_->ops() - 1;
  if (is_found_) {
    if (place_ + 1 < known_->ops() && known_->signature(place_ + 1) == now_->signature(op)) {
      ++place_;
      return;
    }
    is_found_ = false;
  } else if (op > 0) {
    if (known_ != nullptr && find_again()) {
      found(known_, place_);
    }
    return;
  }
  // Another step may have begun as this one.
  if (std::shared_ptr<const RememberedStep> other = store_.find(*now_, op)) {
    for (uint32_t i = 0; i < places_.size(); ++i) {
      places_[i] = i;
    }
    found(std::move(other), op);
  } else if (op > 0) {
    use_setting({});
    look_at_names();
  }
}

bool StepMemory::find_again() {
  const uint32_t op = now_->ops() - 1;
  if (op + 1 < RememberedStep::kAnchor || times_found_ > 16 + op / 64) {
    return false;
  }
  const uint32_t place = known_->find(now_->anchor(op), place_ + 1);
  if (place == kNone) {
    return false;
  }
  // The ops of the anchor are known too, with what they have made.
  for (uint32_t i = 1; i < RememberedStep::kAnchor; ++i) {
    places_[op - i] = place - i;
  }
  place_ = place;
  return true;
}

void StepMemory::found(std::shared_ptr<const RememberedStep> step, uint32_t place) {
  known_ = std::move(step);
  place_ = place;
  is_found_ = true;
  ++times_found_;
  if (has_chosen_) {
    use_setting(store_.best(*known_));
    evictor_.foresight_changed();
    look_at_names();
  }
}

// --- which rule ------------------------------------------------------------------------------------------------------

void StepMemory::use_setting(const RuleSetting& setting) {
  if (setting == setting_) {
    return;
  }
  is_one_setting_ = is_one_setting_ && !has_chosen_;
  bound_ = RuleTrials::kNoBound;
  setting_ = setting;
  evictor_.set_rule(setting.constants);
  evictor_.foresight_changed();
}

void StepMemory::about_to_choose() {
  if (has_chosen_) {
    return;
  }
  if (is_found_) {
    const bool may_try = place_ + 1 == now_->ops() && pause_ == 0;
    const RuleTrials::Run run =
        may_try ? store_.next_run(*known_, evictor_.budget()) : RuleTrials::Run{store_.best(*known_)};
    use_setting(run.setting);
    is_trying_ = run.bound != RuleTrials::kNoBound;
    bound_ = run.bound * std::max(known_->length(), 1.0);
  }
  has_chosen_ = true;
  look_at_names();
}

double StepMemory::cost_of(uint32_t op) const {
  return places_[op] != kNone ? known_->cost(places_[op]) : now_->cost(op);
}

void StepMemory::replayed(NodeId node) {
  if (node >= op_of_.size() || op_of_[node] == kNone) {
    return;
  }
  replayed_cost_ += cost_of(op_of_[node]);
  if (replayed_cost_ > bound_) {
    given_up_ = setting_;
    use_setting(store_.best(*known_));
    look_at_names();
  }
}

// --- what is to come -------------------------------------------------------------------------------------------------

uint32_t StepMemory::known_result(ValueId value) const {
  if (value >= origins_.size() || origins_[value].op == kNone) {
    return kNone;
  }
  const uint32_t op = places_[origins_[value].op];
  if (op == kNone) {
    return kNone;
  }
  const uint32_t result = known_->first_result(op) + origins_[value].result;
  return result < known_->first_result(op + 1) ? result : kNone;
}

double StepMemory::remembered_use(ValueId value) const {
  const uint32_t result = known_result(value);
  const uint32_t next = result != kNone ? known_->next_use(result, place_) : kNone;
  return next != kNone ? known_->begin(next) : kNever;
}

double StepMemory::next_use(ValueId value) const {
  const double known = remembered_use(value);
  if (known != kNever) {
    return known;
  }
  const double first = first_indirect_use(evictor_, value, [this](ValueId result) { return remembered_use(result); });
  return first != kNever ? first : now() + step_length();
}

void StepMemory::ignore_names_if_done(ValueId value) {
  if (wants_ == Wants::kUntilTaken || !has_chosen_ || !is_found_ || setting_.is_plain() ||
      evictor_.ignores_hooks(value) || known_result(value) == kNone || remembered_use(value) != kNever) {
    return;
  }
  evictor_.ignore_hooks(value);
  ignored_.push_back(value);
}

void StepMemory::look_at_names() {
  for (const ValueId value : ignored_) {
    evictor_.heed_hooks(value);
  }
  ignored_.clear();
  if (wants_ == Wants::kPerhapsLonger) {
    for (ValueId value = 0; value < origins_.size(); ++value) {
      ignore_names_if_done(value);
    }
  }
}

int64_t StepMemory::bytes() const {
  return now_->bytes() + static_cast<int64_t>(origins_.capacity() * sizeof(Origin) +
                                              (op_of_.capacity() + places_.capacity()) * sizeof(uint32_t));
}

}  // namespace ac2::internal
