#include "ac2/internal/record/discrete_results.h"

#include <string_view>

#include "ac2/internal/libtorch/for_each_tensor.h"
#include "ac2/internal/operators/op_tables.h"

namespace ac2::internal {

namespace {

struct Kinds {
  bool discrete = false;
  bool numbers = false;
};

Kinds kinds_of(c10::ArrayRef<c10::IValue> values) {
  Kinds kinds;
  for_each_tensor(values, [&](const at::Tensor& tensor) {
    if (tensor.defined()) {
      (is_discrete(tensor.scalar_type()) ? kinds.discrete : kinds.numbers) = true;
    }
  });
  return kinds;
}

}  // namespace

bool is_discrete(c10::ScalarType type) {
  return c10::isIntegralType(type, /*includeBool=*/true) && type != c10::kByte && type != c10::kUInt64;
}

bool has_discrete_results(const OpFacts& facts, c10::ArrayRef<c10::IValue> arguments,
                          c10::ArrayRef<c10::IValue> results) {
  bool makes_discrete = kinds_of(results).discrete;
  for (const uint16_t written : facts.written) {
    makes_discrete |= kinds_of(arguments.slice(written, 1)).discrete;
  }
  return makes_discrete && kinds_of(arguments).numbers &&
         !has_discrete_results_of_no_numbers(std::string_view(facts.name).substr(0, facts.name.find('.')));
}

bool chooses_mostly(c10::ArrayRef<c10::IValue> results) {
  int64_t indices = 0, numbers = 0;
  for_each_tensor(results, [&](const at::Tensor& tensor) {
    if (tensor.defined() && tensor.scalar_type() != at::kBool) {
      (is_discrete(tensor.scalar_type()) ? indices : numbers) += tensor.numel();
    }
  });
  return indices > 1 && indices >= numbers;
}

}  // namespace ac2::internal
