// Two trainings of the same model side by side, as a table of their losses.
//
//   std::vector<gpt::LossPair> losses;   // one a step
//   gpt::print_losses(std::cout, "quantize8", losses);
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace gpt {

struct LossPair {
  float policy = 0;
  float none = 0;
};

// Ten rows, each the mean over a tenth of the steps (fewer, if there are fewer steps), and the largest difference of
// one step. Two trainings drift apart once their gradients differ at all: small differences of either sign say nothing.
void print_losses(std::ostream& out, const std::string& policy, const std::vector<LossPair>& losses);

}  // namespace gpt
