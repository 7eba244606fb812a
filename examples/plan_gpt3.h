// The bytes that the layers of a large GPT hold for backward, without plans and with them, computed on meta tensors:
// without the model's memory, and without its time.
//
//   gpt::print_plans(std::cout, gpt::plan_layers({}), {});
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "ac2/ac2.h"

namespace gpt {

// GPT-3 175B: Brown et al., "Language Models are Few-Shot Learners" (arXiv 2005.14165), table 2.1.
struct LargeGptOptions {
  int64_t layers = 96;
  int64_t dim = 12288;
  int64_t heads = 96;
  int64_t context = 2048;
  int64_t batch = 1;
  at::ScalarType dtype = at::kHalf;
  double dropout = 0;
  // Budgets to plan for, in bytes; empty: three quarters, a half, a quarter, an eighth of what is held without
  // recomputation, those that are too small for a plan excepted.
  std::vector<int64_t> budgets = {};
};

struct LayerPlan {
  std::string name;
  int64_t budget = 0;  // 0: none
  ac2::PlanSummary summary;
};

struct LayerPlans {
  LargeGptOptions options;
  int64_t parameters = 0;  // in the layers
  std::vector<LayerPlan> plans;
};

// The layers alone, from hidden states to hidden states; embeddings and the output projection are left out.
// No recomputation; each layer recomputed from its input; plans for the budgets, in one region around all layers; the
// smallest plan. Throws c10::Error for sizes that make no model, and for budgets that no plan fits.
LayerPlans plan_layers(const LargeGptOptions& options);

void print_plans(std::ostream& out, const LayerPlans& plans);

}  // namespace gpt
