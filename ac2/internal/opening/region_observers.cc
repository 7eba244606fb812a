#include "ac2/internal/opening/region_observers.h"

#include <utility>

#include "ac2/internal/observe/timeline.h"
#include "ac2/internal/observe/verifier.h"

namespace ac2::internal {

namespace {

class Verifying final : public RegionObserver {
 public:
  std::string_view kind() const override { return "verifier"; }
  void start(Tape& tape) override { Verifier::start(tape); }
};

class KeepingATimeline final : public RegionObserver {
 public:
  std::string_view kind() const override { return "timeline"; }
  void start(Tape& tape) override { timeline_ = Timeline::start(tape); }
  void scopes_changed(const PolicyStack& policies) override {
    for (const PolicyStack::Entry& entry : policies.entries()) {
      timeline_->add_scope(entry.id, entry.depth, entry.policy.name);
    }
  }

 private:
  std::shared_ptr<Timeline> timeline_;
};

class LoggingAStep final : public RegionObserver {
 public:
  explicit LoggingAStep(std::shared_ptr<StepLog> log) : log_(std::move(log)) {}

  std::string_view kind() const override { return "step log"; }
  void start(Tape& tape) override {
    const Tape::Lock locked(tape);
    log_->set_tape(tape);
    locked->observers().add(log_);
  }

 private:
  const std::shared_ptr<StepLog> log_;
};

}  // namespace

std::shared_ptr<RegionObserver> verifying() {
  return std::make_shared<Verifying>();
}

std::shared_ptr<RegionObserver> keeping_a_timeline() {
  return std::make_shared<KeepingATimeline>();
}

std::shared_ptr<RegionObserver> logging_to(std::shared_ptr<StepLog> log) {
  return std::make_shared<LoggingAStep>(std::move(log));
}

}  // namespace ac2::internal
