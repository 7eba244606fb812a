// The kinds of steps of a random loop's round. A family of steps a file.
#pragma once

#include <functional>
#include <string>

#include "tests/fuzz/dice.h"
#include "tests/fuzz/loop_state.h"

namespace ac2::test {

struct LoopStep {
  std::string words;
  std::function<void(LoopState& state, int round)> run;
  // It may run in an inner scope, or without the region: it writes into nothing that a region may hold.
  bool only_computes = false;
};

// loop_steps_learn.cc: from a batch to a step of an optimizer.
LoopStep batch_step(Dice& dice);
LoopStep forward_step(Dice& dice);
LoopStep loss_step(Dice& dice);
LoopStep backward_step(Dice& dice);
// A backward whose graph stays, or whose gradients have one.
LoopStep keeping_backward_step(Dice& dice);
LoopStep optimizer_step(Dice& dice);

// loop_steps_carry.cc: what goes on beside that.
LoopStep carry_step(Dice& dice);
// A generator and its critic, each with a backward of its own; the generator's graph outlives the critic's.
LoopStep adversaries_step();

}  // namespace ac2::test
