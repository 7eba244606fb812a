#include "examples/mesh/pipeline_schedule.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

namespace gpt {
namespace {

// The tensors that go from one stage to another, in their order.
class Wire {
 public:
  Wire(double seconds, int64_t micro_batches) : seconds_(seconds), transfers_(micro_batches) {}

  // The times at which the stages are there.
  void send(int64_t i, double now) { transfers_[i].sent = now; }
  void receive(int64_t i, double now) { transfers_[i].awaited = now; }
  // Empty as long as a stage is not there.
  std::optional<double> arrival(int64_t i) const {
    const Transfer& transfer = transfers_[i];
    if (!transfer.sent || !transfer.awaited) return std::nullopt;
    return std::max(*transfer.sent, *transfer.awaited) + seconds_;
  }

 private:
  struct Transfer {
    std::optional<double> sent, awaited;
  };

  double seconds_;
  std::vector<Transfer> transfers_;
};

// A stage on its way through its turns. The wires are null where there is no stage to send to or receive from.
class RunningStage {
 public:
  struct Wires {
    Wire* in = nullptr;
    Wire* out = nullptr;
  };

  RunningStage(const StageTimes& times, std::vector<MicroBatchTurn> turns, Wires forward, Wires backward)
      : times_(times), turns_(std::move(turns)), forward_(forward), backward_(backward) {}

  // As far as the stage comes. False if it does not move.
  bool advance() {
    bool has_moved = false;
    while (next_ < turns_.size() && take_step()) has_moved = true;
    return has_moved;
  }
  bool has_ended() const { return next_ == turns_.size(); }
  double now() const { return now_; }

 private:
  enum class Step { kAwait, kCompute, kSend };

  // False if another stage has to be there first.
  bool take_step() {
    const MicroBatchTurn& turn = turns_[next_];
    const Wires& wires = turn.is_forward ? forward_ : backward_;
    switch (step_) {
      case Step::kAwait:
        if (wires.in != nullptr) wires.in->receive(turn.micro_batch, now_);
        step_ = Step::kCompute;
        return true;
      case Step::kCompute:
        if (wires.in != nullptr && !wait_for(*wires.in, turn.micro_batch)) return false;
        now_ += turn.is_forward ? times_.forward : times_.backward;
        step_ = Step::kSend;
        return true;
      case Step::kSend:
        if (wires.out != nullptr) {
          if (turn.micro_batch > 0 && !wait_for(*wires.out, turn.micro_batch - 1)) return false;
          wires.out->send(turn.micro_batch, now_);
        }
        step_ = Step::kAwait;
        ++next_;
        return true;
    }
    return false;
  }

  bool wait_for(const Wire& wire, int64_t micro_batch) {
    const std::optional<double> arrival = wire.arrival(micro_batch);
    if (arrival) now_ = std::max(now_, *arrival);
    return arrival.has_value();
  }

  const StageTimes& times_;
  std::vector<MicroBatchTurn> turns_;
  Wires forward_, backward_;
  size_t next_ = 0;
  Step step_ = Step::kAwait;
  double now_ = 0;
};

}  // namespace

int64_t most_in_flight(int64_t stages, int64_t stage, int64_t micro_batches) {
  return std::min(stages - stage, micro_batches);
}

std::vector<MicroBatchTurn> turns_of_stage(int64_t stages, int64_t stage, int64_t micro_batches) {
  const int64_t most = most_in_flight(stages, stage, micro_batches);
  std::vector<MicroBatchTurn> turns;
  for (int64_t i = 0; i < micro_batches + most - 1; ++i) {
    if (i < micro_batches) turns.push_back({.is_forward = true, .micro_batch = i});
    if (i + 1 >= most) turns.push_back({.is_forward = false, .micro_batch = i + 1 - most});
  }
  return turns;
}

PipelineTimes pipeline_times(const std::vector<StageTimes>& stages, int64_t micro_batches) {
  TORCH_CHECK(!stages.empty() && micro_batches > 0, "A pipeline of ", stages.size(), " stages and ", micro_batches,
              " micro-batches has no times; expected 1 or more of each.");
  const auto count = static_cast<int64_t>(stages.size());
  // Between stage i and the next one.
  std::vector<Wire> forward, backward;
  for (int64_t i = 0; i + 1 < count; ++i) {
    forward.emplace_back(stages[i].to_next, micro_batches);
    backward.emplace_back(stages[i + 1].to_before, micro_batches);
  }
  std::vector<RunningStage> running;
  for (int64_t i = 0; i < count; ++i) {
    Wire* const before = i > 0 ? &forward[i - 1] : nullptr;
    Wire* const after = i + 1 < count ? &forward[i] : nullptr;
    running.emplace_back(stages[i], turns_of_stage(count, i, micro_batches),
                         RunningStage::Wires{.in = before, .out = after},
                         RunningStage::Wires{.in = after != nullptr ? &backward[i] : nullptr,
                                             .out = before != nullptr ? &backward[i - 1] : nullptr});
  }
  bool has_moved = true;
  while (has_moved) {
    has_moved = false;
    for (RunningStage& stage : running) has_moved |= stage.advance();
  }
  PipelineTimes times;
  for (int64_t i = 0; i < count; ++i) {
    TORCH_INTERNAL_ASSERT(running[i].has_ended());
    // Sent, the last tensors have to arrive: pipeline_step.h waits for that before the optimizer.
    double end = running[i].now();
    if (i > 0) end = std::max(end, *backward[i - 1].arrival(micro_batches - 1));
    if (i + 1 < count) end = std::max(end, *forward[i].arrival(micro_batches - 1));
    times.step = std::max(times.step, end + stages[i].after);
  }
  for (const StageTimes& stage : stages) times.waits.push_back(times.step - stage.busy(micro_batches));
  return times;
}

}  // namespace gpt
