// A rule that names victims in place of the library's evictor, to compare with it.
//
//   const std::unique_ptr<OtherRule> rule = make_other_rule(OtherRuleName::kDtr, evictor);
//   rule->came(value); rule->left(value);          // bytes were computed, or dropped
//   const ValueId victim = rule->next_victim();    // kNoId: nothing can be dropped
//
// The evictor serves as the record of the step: its graph, its clock, pins and places. Of all values that
// may be dropped and have bytes, next_victim() names the one with the least score, and of equal ones the oldest. All of
// them are looked at: a rule here shows what it decides, and not how quickly.
//
// Guaranteed: the same calls give the same victims. Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ac2/internal/eviction/evictor.h"
#include "benchmarks/simulator/step_simulator.h"

namespace ac2::internal {

class OtherRule {
 public:
  explicit OtherRule(const Evictor& evictor) : evictor_(evictor) {}
  virtual ~OtherRule() = default;
  OtherRule(const OtherRule&) = delete;
  OtherRule& operator=(const OtherRule&) = delete;

  ValueId next_victim();
  // The op that makes the value, or one that makes a view of it, has run for the first time.
  void made(ValueId value, double cost);
  // An op that takes the value is about to run or to be replayed.
  void used(ValueId value) { value_of(value).last_use = evictor_.time(); }
  virtual void came(ValueId value);
  virtual void left(ValueId value);

 protected:
  // Anything above `limit` will do where the score is above it.
  virtual double score(ValueId value, double limit) = 0;

  const EvictorGraph& graph() const { return evictor_.graph(); }
  const Evictor& evictor() const { return evictor_; }
  double bytes(ValueId value) const { return static_cast<double>(graph().value(value).bytes); }
  // The time since the value was last used.
  double staleness(ValueId value) const { return evictor_.time() - values_[value].last_use; }
  // `cost` over the bytes of the value and the time since its last use; infinite if either is 0.
  double rate(double cost, ValueId value) const;
  // Of the op that makes the value, and of those that make views of it.
  double cost(ValueId value) const { return values_[value].cost; }

 private:
  struct Value {
    double cost = 0;
    double last_use = 0;
    size_t place = 0;  // in there_, if it is there
  };

  Value& value_of(ValueId value);

  const Evictor& evictor_;
  std::vector<Value> values_;   // by id
  std::vector<ValueId> there_;  // values that came and have not left
};

// `name` is not kNone.
std::unique_ptr<OtherRule> make_other_rule(OtherRuleName name, const Evictor& evictor);

}  // namespace ac2::internal
