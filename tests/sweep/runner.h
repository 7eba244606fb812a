// One row of the sweep, run plain and in a region, and compared.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "tests/sweep/case.h"

namespace ac2::test::sweep {

// The function's own surroundings, inside the region.
enum class Stretch { kNone, kNoGrad, kInference };

enum class Backward {
  kNone,
  kOnce,
  kTwice,   // the first with retain_graph
  kSecond,  // with create_graph, and then backward through the gradients
};

struct Plan {
  bool inputs_from_outside = false;  // otherwise the region computes them too
  bool results_alive = false;        // in backward
  Stretch stretch = Stretch::kNone;
  Backward backward = Backward::kOnce;
  bool backward_inside = false;  // while the region is open
};

struct Result {
  Tensors outputs;
  Tensors gradients;  // of each backward in turn
  Tensors second_gradients;
  at::Tensor generator_after_forward, generator_after_backward;
  std::string error;  // of the backward through the gradients, or of a function that cannot run
  bool differentiable = false;
  // Of the region, if there was one.
  Stats stats;
  std::shared_ptr<const Trace> trace;
};

// The function is called with clones of `inputs`, and its differentiable results are put through sin, which needs them:
// what backward computes depends on them, and unless they are kept alive they are gone by then.
Result run(const Case& row, const Tensors& inputs, const Plan& plan, const Policy* policy);

// Runs `row` plain and under `policy`; expects equal results, and nothing left of the region.
struct Comparison {
  Result plain;
  Result region;
  size_t inputs = 0;
};
Comparison expect_same(const Case& row, const Plan& plan, const Policy& policy);

// One of the CheckpointPolicies, or SaveWithHooks, for every op; which, depends on the op's index and `seed` alone.
Policy picking_at_random(uint64_t seed);

}  // namespace ac2::test::sweep
