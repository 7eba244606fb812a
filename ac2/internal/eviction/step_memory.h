// Finds the step under way among those that are remembered, and tells the evictor what is to come of it.
//
//   StepMemory memory(evictor, StepStore::process(), StepMemory::Wants::kUntilTaken);   // the evictor's foresight
//   memory.ran(signature, cost, inputs);   // the program has run an op
//   memory.made(node, result);             // once for each result of that op, in order
//   memory.took(value);                    // backward has taken a value
//   memory.replayed(node);
//   memory.about_to_choose();              // before evictor.next_victim()
//   memory.step_ended();
//
// A signature says what an op is: its operator and the sizes of its results. As long as the ops have the signatures of
// a step that is remembered, from the first op on, the memory knows the uses that are to come. Where the program
// departs from that step, nothing is known, and the evictor goes by the last use, under the plain rule. The memory
// finds its way again where the last ops are those at a later place of the step: after a branch, or where a sequence
// has grown.
//
// At the first victim of a step the memory sets the evictor's rule, as RuleTrials says. A try that has cost more than
// the best run is given up: the step ends with the best setting.
//
// Backward has no op in the evictor's graph. Taking a value counts as an op that costs what the value's op costs, so
// that the uses in backward have an order and a distance.
//
// Cost: an op is O(1) and its inputs; 36 bytes an op of the step under way, 12 a result, 8 a use. Where the step
// departs or is found again, all candidates are compared anew; that happens at most 16 times in a step, and once more
// for each 64 ops.
//
// Threads: not thread-safe. The runtime calls it under the mutex of its Budget.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "ac2/internal/eviction/evictor_ids.h"
#include "ac2/internal/eviction/foresight.h"
#include "ac2/internal/eviction/step_store.h"

namespace ac2::internal {

class Evictor;

class StepMemory final : public Foresight {
 public:
  // How long a hook wants its value.
  enum class Wants : uint8_t {
    kUntilTaken,    // until the value's last use, as hooks of autograd do
    kPerhapsLonger  // perhaps beyond the last use, as names of the program do; from then on such a name does not count
  };

  StepMemory(Evictor& evictor, StepStore& store, Wants wants);

  void ran(uint64_t signature, double cost, absl::Span<const ValueId> inputs);
  void made(NodeId node, ValueId result);
  void took(ValueId value);
  void replayed(NodeId node);
  // Its id may be that of another value from now on.
  void forget(ValueId value);
  void about_to_choose();
  // The events since the last end are a step.
  void step_ended();
  // The step could not be met under its setting, and ends here. Its events are no step.
  void step_failed();

  bool knows_uses() const override { return is_found_ && setting_.next_uses; }
  double next_use(ValueId value) const override;
  // When the next op begins.
  double now() const override { return known_->begin(place_ + 1); }
  double step_length() const override { return known_->length(); }
  double cost_factor(ValueId) const override { return 1; }

  // Of the ops of the step under way: those at which the uses to come were known.
  int64_t ops_known() const { return ops_known_; }
  const RuleSetting& setting() const { return setting_; }
  // Whether this run finds out what its setting costs.
  bool is_trying() const { return is_trying_; }
  std::optional<RuleSetting> given_up() const { return given_up_; }
  // Of the step under way.
  int64_t bytes() const;

 private:
  static constexpr uint32_t kNone = RememberedStep::kNone;
  static constexpr int kLongestPause = 64;

  // Which result of which op of this step a value is.
  struct Origin {
    uint32_t op = kNone;
    uint32_t result = 0;
  };

  void follow();
  bool find_again();
  void found(std::shared_ptr<const RememberedStep> step, uint32_t place);
  void use_setting(const RuleSetting& setting);
  void begin_step();
  // The cost of a replay of the op, as it is remembered, so that the runs of a step are compared by the same costs.
  double cost_of(uint32_t op) const;
  // The value among the results of known_, or kNone.
  uint32_t known_result(ValueId value) const;
  // When it is used next, as it is remembered; kNever if that is not known.
  double remembered_use(ValueId value) const;
  void ignore_names_if_done(ValueId value);
  void look_at_names();

  Evictor& evictor_;
  StepStore& store_;
  const Wants wants_;
  std::unique_ptr<RememberedStep> now_;
  std::vector<Origin> origins_;                  // by value
  std::vector<uint32_t> op_of_;                  // by node
  std::vector<uint32_t> places_;                 // by op of this step: the op of known_
  std::shared_ptr<const RememberedStep> last_;   // the step before
  std::shared_ptr<const RememberedStep> known_;  // the step that this one is taken for
  uint32_t place_ = kNone;                       // the last op of known_ that was met
  bool is_found_ = false;                        // that was the last op of this step
  int64_t ops_known_ = 0;
  uint32_t times_found_ = 0;

  RuleSetting setting_;
  bool has_chosen_ = false;     // a victim, in this step
  bool is_one_setting_ = true;  // since then
  bool is_trying_ = false;
  double bound_ = RuleTrials::kNoBound;
  double replayed_cost_ = 0;
  std::optional<RuleSetting> given_up_;
  int pause_ = 0;  // for so many steps nothing is tried, because the step of a try has departed
  int pause_length_ = 1;
  std::vector<ValueId> ignored_;  // values whose names do not count
};

}  // namespace ac2::internal
