// Loops drawn at random: the same for the same seed everywhere, with a region around them and without.
//
//   const LoopProgram program = LoopProgram::draw(17);
//   LoopState state = program.begin();
//   for (int i = 0; i < 8; ++i) program.round(state, i);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/fuzz/loop_state.h"
#include "tests/fuzz/loop_steps.h"

namespace ac2::test {

// Every `period` rounds the same steps run: some run in a part of the rounds only, and some rounds end early. A loop
// from which steps are taken out is still a loop.
struct LoopProgram {
  uint32_t seed = 0;
  int period = 1;  // in rounds
  std::vector<LoopModelKind> models;
  struct Step {
    LoopStep step;
    int at = -1;              // the only round of a period in which it runs; -1: all
    bool ends_round = false;  // it is a `continue`
    int inner_scope = 0;      // 0: none; 1: of PREFER_SAVE; 2: of PREFER_RECOMPUTE; 3: the step runs without the region
  };
  std::vector<Step> steps;

  static LoopProgram draw(uint32_t seed);

  // Seeds the default generator.
  LoopState begin() const;
  void round(LoopState& state, int round) const;
  // A line for each step.
  std::string words() const;
  // Whether some step computes without the region.
  bool leaves_region() const;

 private:
  void run_steps(LoopState& state, int round) const;
};

}  // namespace ac2::test
