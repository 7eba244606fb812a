#include "ac2/internal/planning/step_peak.h"

#include <algorithm>
#include <utility>

namespace ac2::internal {

// The results that are alive on the device, as a run of the simulator goes on: those that the program has, and those
// that the region holds or has computed again.
class StepPeak::Alive : public KeepWatch {
 public:
  explicit Alive(StepPeak& peak)
      : peak_(peak), program_has_(peak.graph_.values.size()), plain_(peak.graph_.values.size()) {
    for (uint32_t value = 0; value < program_has_.size(); ++value) {
      if (graph().values[value].op == StepGraph::kOutside) {
        set_program_has(value, true);
      }
    }
  }

  void before_event(uint32_t event) final {
    for (uint32_t look = peak_.first_look_[event]; look < peak_.first_look_[event + 1]; ++look) {
      before_look(look);
      for (const StepReadings::Change& change : peak_.readings_.looks[look].found) {
        set_program_has(change.value, change.has);
      }
      at_look(look);
    }
  }
  void after_event(uint32_t event) final {
    event_over();
    for (const uint32_t value : peak_.readings_.handed_out[event]) {
      set_program_has(value, true);
    }
  }
  void bytes_come(uint32_t value, bool is_form) final { count(value, is_form, 1); }
  void bytes_go(uint32_t value, bool is_form) final { count(value, is_form, -1); }

 protected:
  // With what was alive since the look before.
  virtual void before_look(uint32_t look) = 0;
  // With what is alive at it.
  virtual void at_look(uint32_t look) = 0;
  virtual void event_over() {}

  int64_t bytes() const { return bytes_; }
  const StepPeak& peak() const { return peak_; }
  StepPeak& peak() { return peak_; }
  // The bytes that the op's results add.
  int64_t added_by(uint32_t op) const {
    int64_t added = 0;
    for (const uint32_t result : graph().ops[op].results) {
      added += is_alive(result) ? 0 : plain_bytes(result);
    }
    return added;
  }

 private:
  const StepGraph& graph() const { return peak_.graph_; }
  bool is_alive(uint32_t value) const { return program_has_[value] != 0 || plain_[value] > 0; }
  int64_t plain_bytes(uint32_t value) const {
    const StepGraph::Value& of = graph().values[value];
    return peak_.readings_.is_there[value] == 0 ? 0 : of.unpacked_bytes > 0 ? of.unpacked_bytes : of.bytes;
  }
  void set_program_has(uint32_t value, bool has) {
    const bool was = is_alive(value);
    program_has_[value] = has ? 1 : 0;
    note(value, was);
  }
  void count(uint32_t value, bool is_form, int32_t more) {
    if (is_form) {
      bytes_ += more * (peak_.readings_.is_there[value] != 0 ? graph().values[value].bytes : 0);
      return;
    }
    const bool was = is_alive(value);
    plain_[value] += more;
    note(value, was);
  }
  void note(uint32_t value, bool was_alive) {
    const bool is = is_alive(value);
    if (is != was_alive) {
      bytes_ += is ? plain_bytes(value) : -plain_bytes(value);
    }
  }

  StepPeak& peak_;
  std::vector<uint8_t> program_has_;
  std::vector<int32_t> plain_;  // by value: in how many ways the region has it
  int64_t bytes_ = 0;
};

// Finds the rest.
class StepPeak::Recording final : public Alive {
 public:
  explicit Recording(StepPeak& peak) : Alive(peak), now_(peak.readings_.start), at_look_(bytes()), freed_(0) {
    peak.rests_.resize(peak.readings_.looks.size());
  }

  void replays(uint32_t /*op*/, int64_t /*over*/) override {}
  void may_be_most() override {}

 private:
  void before_look(uint32_t index) override {
    const StepReadings::Look& look = peak().readings_.looks[index];
    if (look.allocated > 0) {
      // The bytes that an event frees go after the event, before anything is allocated.
      const int64_t highest = std::min(look.highest, now_ - freed_ + look.allocated);
      peak().rests_[index].highest = highest - bytes();
    }
  }
  void at_look(uint32_t index) override {
    now_ = peak().readings_.looks[index].now;
    peak().rests_[index].now = now_ - bytes();
    at_look_ = bytes();
    freed_ = 0;
  }
  void event_over() override { freed_ = std::max<int64_t>(0, at_look_ - bytes()); }

  int64_t now_;
  int64_t at_look_;  // alive
  int64_t freed_;    // by the event since
};

class StepPeak::Planned final : public Alive {
 public:
  explicit Planned(StepPeak& peak) : Alive(peak) {}

  int64_t highest() const { return highest_; }
  void replays(uint32_t op, int64_t over) override {
    note(rest_ + added_by(op) - over + peak().readings_.workspaces[op]);
  }
  void may_be_most() override { note(rest_); }

 private:
  void before_look(uint32_t look) override { note(peak().rests_[look].highest); }
  void at_look(uint32_t look) override {
    rest_ = peak().rests_[look].now;
    note(rest_);
  }
  void note(int64_t beside) { highest_ = std::max(highest_, bytes() + beside); }

  int64_t highest_ = 0;
  int64_t rest_ = 0;
};

StepPeak::StepPeak(const StepGraph& graph, StepReadings readings)
    : graph_(graph), readings_(std::move(readings)), simulator_(graph), first_look_(graph.events.size() + 2) {
  const auto end = static_cast<uint32_t>(readings_.looks.size());
  for (uint32_t look = 0, event = 0; event < first_look_.size(); ++event) {
    while (look < end && readings_.looks[look].event < event) {
      ++look;
    }
    first_look_[event] = look;
  }
  std::vector<Keep> kept(graph.ops.size(), Keep::kWanted);
  simulator_.complete(kept);
  Recording recording(*this);
  // A recording has no final ops: what it keeps may be dropped.
  simulator_.watch(kept, recording, /*with_final_ops=*/false);
  recording.before_event(static_cast<uint32_t>(graph.events.size()));
}

int64_t StepPeak::of(absl::Span<const Keep> kept) {
  Planned planned(*this);
  simulator_.watch(kept, planned);
  planned.before_event(static_cast<uint32_t>(graph_.events.size()));
  return planned.highest();
}

}  // namespace ac2::internal
