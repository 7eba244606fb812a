// One row of the operator sweep: a differentiable function of LibTorch, and inputs to call it with.
//
//   constexpr Case kCases[] = {
//       {"erf", one, [](In t) -> Out { return at::erf(t[0]); }},
//       {"add/broadcast", two, [](In t) -> Out { return t[0] + t[1][0]; }},
//   };
//
// The name is the function's as users write it, and what is special about the row after a slash.
#pragma once

#include <ATen/ATen.h>

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "tests/support/regions.h"

namespace ac2::test::sweep {

using In = const Tensors&;

// The tensors that a function returned, and the leaves that it brought with it (a module's parameters).
struct Out {
  Out(at::Tensor tensor) : tensors{std::move(tensor)} {}
  Out(Tensors list, Tensors parameters = {}) : tensors(std::move(list)), leaves(std::move(parameters)) {}
  Out(at::Tensor tensor, Tensors parameters) : tensors{std::move(tensor)}, leaves(std::move(parameters)) {}
  template <class... Tensor>
  Out(const std::tuple<Tensor...>& results)
      : tensors(std::apply([](const auto&... t) { return Tensors{t...}; }, results)) {}

  Tensors tensors;
  Tensors leaves;
};

// The peculiarities of a row. Each is a claim that the sweep checks.
enum Flags : unsigned {
  kNone = 0,
  kNothingToReplay = 1U << 0,       // returns views of its inputs, or its inputs
  kWritesAnInput = 1U << 1,         // and returns it: what lies in memory from outside is held, not replayed
  kHeld = 1U << 2,                  // its results are held, whatever the policy: their memory was not made by an op
  kHeldWithoutGradients = 1U << 3,  // the same, but only under no_grad
  kZeroGradient = 1U << 4,          // the gradients are zeros
  kNoSecondDerivative = 1U << 5,    // plain LibTorch throws, or the gradients depend on no input
  kNoInferenceStretch = 1U << 6,    // plain LibTorch throws if the function alone runs in inference mode
  kFlat = kZeroGradient | kNoSecondDerivative,
  // As kNoSecondDerivative, with LibTorch before 2.12, and before 2.14.
  kNoSecondDerivativeBefore12 = 1U << 7,
  kNoSecondDerivativeBefore14 = 1U << 8,
};

struct Case {
  const char* name;
  Tensors (*inputs)();
  Out (*fn)(In);
  unsigned flags = kNone;

  bool has(Flags flag) const { return (flags & flag) == flag; }
};

void PrintTo(const Case& row, std::ostream* out);

// The function's name: "add" of "add/broadcast".
std::string_view function_of(const Case& row);
// The same without what marks a variant that writes: "add" of "add_", "add_out".
std::string base_of(const Case& row);

// All rows of all tables.
std::vector<Case> all_cases();

std::span<const Case> pointwise_cases();
std::span<const Case> binary_cases();
std::span<const Case> reduction_cases();
std::span<const Case> indexing_cases();
std::span<const Case> shape_cases();
std::span<const Case> linalg_cases();
std::span<const Case> decomposition_cases();
std::span<const Case> spectral_cases();
std::span<const Case> convolution_cases();
std::span<const Case> pooling_cases();
std::span<const Case> network_cases();
std::span<const Case> recurrent_cases();
std::span<const Case> loss_cases();
std::span<const Case> write_cases();
std::span<const Case> foreach_cases();
std::span<const Case> layout_cases();
std::span<const Case> module_cases();
std::span<const Case> layer_cases();

// Inputs. `leaf` makes a differentiable one of any tensor.
at::Tensor leaf(const at::Tensor& values);
at::Tensor integers(std::initializer_list<int64_t> values, at::IntArrayRef sizes = {});

Tensors one();           // 4×6, normally distributed
Tensors two();           // 2 of 4×6
Tensors three();         // 3 of 4×6
Tensors vector();        // 6
Tensors vectors();       // 2 of 6
Tensors positive();      // 4×6, > 0.1
Tensors two_positive();  // 2 of them
Tensors unit();          // 4×6, between -0.9 and 0.9
Tensors fraction();      // 4×6, between 0.05 and 0.95
Tensors square();        // 5×5
Tensors regular();       // 5×5, well away from singular
Tensors symmetric();     // 5×5, positive definite
Tensors batch();         // 2×4×5
Tensors signal();        // 2×3×8
Tensors image();         // 2×4×6×6
Tensors volume();        // 1×2×4×4×4
Tensors complex_one();   // 4×6, complex
Tensors complex_two();   // 2 of them

}  // namespace ac2::test::sweep
