#include "tests/fuzz/loop_program.h"

#include <ATen/Context.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <utility>

#include "ac2/scope.h"

namespace ac2::test {

namespace {

constexpr int kWithoutRegion = 3;  // of LoopProgram::Step::inner_scope

class Drawing {
 public:
  explicit Drawing(uint32_t seed) : dice_(seed) {
    program_.seed = seed;
    program_.period = dice_.roll(2) == 0 ? 1 : 2 + dice_.roll(3);
    const int models = 1 + dice_.roll(2);
    for (int i = 0; i < models; ++i) program_.models.push_back(LoopModelKind::draw(dice_));
  }

  LoopProgram draw() {
    const bool trains = dice_.roll(4) != 0;
    const int blocks = 1 + dice_.roll(2);
    for (int i = 0; i < blocks; ++i) block(trains);
    carry(2);
    return std::move(program_);
  }

 private:
  // A batch, forward, a loss, and what may follow them.
  void block(bool trains) {
    add(batch_step(dice_));
    carry(2);
    const int forwards = 1 + dice_.roll(3);
    for (int i = 0; i < forwards; ++i) add(forward_step(dice_));
    add(loss_step(dice_));
    carry(2);
    end_round_early();
    if (trains) {
      // The last round of a period has one in any case.
      const bool rare = dice_.roll(3) == 0;
      program_.steps.push_back({backward_step(dice_), rare ? program_.period - 1 : -1});
      if (dice_.roll(4) != 0) add(optimizer_step(dice_));
      if (dice_.roll(8) == 0) add(adversaries_step());
    } else if (dice_.roll(2) == 0) {
      add(keeping_backward_step(dice_));
      if (dice_.roll(4) == 0) add(optimizer_step(dice_));
    }
    carry(3);
  }

  void carry(int most) {
    const int count = dice_.roll(most + 1);
    for (int i = 0; i < count; ++i) add(carry_step(dice_));
    end_round_early();
  }

  void end_round_early() {
    if (program_.period == 1 || dice_.roll(8) != 0) return;
    program_.steps.push_back({{"the round ends", [](LoopState&, int) {}}, dice_.roll(program_.period - 1), true});
  }

  void add(LoopStep step) {
    LoopProgram::Step added{std::move(step)};
    if (dice_.roll(5) == 0) added.at = dice_.roll(program_.period);
    if (program_.period == 1) added.at = -1;
    if (dice_.roll(6) == 0 && added.step.only_computes) added.inner_scope = 1 + dice_.roll(3);
    program_.steps.push_back(std::move(added));
  }

  Dice dice_;
  LoopProgram program_;
};

}  // namespace

LoopProgram LoopProgram::draw(uint32_t seed) {
  return Drawing(seed).draw();
}

LoopState LoopProgram::begin() const {
  at::manual_seed(seed);
  return LoopState(models);
}

void LoopProgram::round(LoopState& state, int round) const {
  state.y = state.x;
  run_steps(state, round);
  if ((round + 1) % period != 0) return;
  // Otherwise graphs grow from round to round, without a region too.
  if (state.backwards == state.backwards_before_period) state.settle();
  state.backwards_before_period = state.backwards;
}

void LoopProgram::run_steps(LoopState& state, int round) const {
  for (const Step& step : steps) {
    if (step.at >= 0 && round % period != step.at) continue;
    if (step.ends_round) return;
    std::optional<PolicyScope> inner;
    std::optional<DisableCheckpointing> disabled;
    if (is_checkpoint_enabled()) {
      if (step.inner_scope == 1) inner.emplace(CheckpointPolicy::PREFER_SAVE);
      if (step.inner_scope == 2) inner.emplace(CheckpointPolicy::PREFER_RECOMPUTE);
      if (step.inner_scope == kWithoutRegion) disabled.emplace();
    }
    step.step.run(state, round);
  }
}

bool LoopProgram::leaves_region() const {
  return std::any_of(steps.begin(), steps.end(), [](const Step& step) { return step.inner_scope == kWithoutRegion; });
}

std::string LoopProgram::words() const {
  static constexpr const char* kScopes[] = {"", ", in a scope of PREFER_SAVE", ", in a scope of PREFER_RECOMPUTE",
                                            ", without the region"};
  std::ostringstream text;
  for (size_t i = 0; i < models.size(); ++i) text << "model " << i << ": " << models[i].words() << "\n";
  text << "in each round r:\n  y = x\n";
  for (const Step& step : steps) {
    text << "  ";
    if (step.at >= 0 && period > 1) text << "if r % " << period << " == " << step.at << ": ";
    text << step.step.words << kScopes[step.inner_scope] << "\n";
  }
  text << "after a period without a backward: graphs are dropped\n";
  return text.str();
}

}  // namespace ac2::test
