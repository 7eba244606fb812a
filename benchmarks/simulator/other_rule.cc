#include "benchmarks/simulator/other_rule.h"

#include <limits>
#include <stdexcept>

#include "benchmarks/simulator/dtr_class_rule.h"
#include "benchmarks/simulator/dtr_rule.h"
#include "benchmarks/simulator/local_rules.h"

namespace ac2::internal {

ValueId OtherRule::next_victim() {
  ValueId best = kNoId;
  double best_score = std::numeric_limits<double>::infinity();
  for (const ValueId value : there_) {
    if (graph().value(value).bytes == 0 || !evictor_.may_drop(value)) {
      continue;
    }
    const double score_now = score(value, best_score);
    if (best == kNoId || score_now < best_score || (score_now == best_score && value < best)) {
      best = value;
      best_score = score_now;
    }
  }
  return best;
}

double OtherRule::rate(double cost, ValueId value) const {
  const double denominator = bytes(value) * staleness(value);
  return denominator > 0 ? cost / denominator : std::numeric_limits<double>::infinity();
}

OtherRule::Value& OtherRule::value_of(ValueId value) {
  if (value >= values_.size()) {
    values_.resize(value + 1);
  }
  return values_[value];
}

void OtherRule::came(ValueId value) {
  value_of(value).place = there_.size();
  there_.push_back(value);
}

void OtherRule::left(ValueId value) {
  const size_t place = values_[value].place;
  there_[place] = there_.back();
  values_[there_[place]].place = place;
  there_.pop_back();
}

void OtherRule::made(ValueId value, double cost) {
  value_of(value).cost += cost;
  used(value);
}

std::unique_ptr<OtherRule> make_other_rule(OtherRuleName name, const Evictor& evictor) {
  switch (name) {
    case OtherRuleName::kDtr:
      return std::make_unique<DtrRule>(evictor);
    case OtherRuleName::kDtrClasses:
      return std::make_unique<DtrClassRule>(evictor);
    case OtherRuleName::kDtrLocal:
      return std::make_unique<DtrLocalRule>(evictor);
    case OtherRuleName::kLru:
      return std::make_unique<LruRule>(evictor);
    case OtherRuleName::kLargest:
      return std::make_unique<LargestRule>(evictor);
    case OtherRuleName::kNone:
      break;
  }
  throw std::logic_error("there is no other rule of that name");
}

}  // namespace ac2::internal
