#include "tests/sweep/case.h"

#include <ostream>

namespace ac2::test::sweep {

void PrintTo(const Case& row, std::ostream* out) {
  *out << row.name;
}

std::string_view function_of(const Case& row) {
  const std::string_view name = row.name;
  return name.substr(0, name.find('/'));
}

std::string base_of(const Case& row) {
  std::string_view name = function_of(row);
  if (name.ends_with("_out")) name.remove_suffix(4);
  if (name.ends_with("_")) name.remove_suffix(1);
  return std::string(name);
}

std::vector<Case> all_cases() {
  std::vector<Case> all;
  for (std::span<const Case> table :
       {pointwise_cases(), binary_cases(), reduction_cases(), indexing_cases(), shape_cases(), linalg_cases(),
        decomposition_cases(), spectral_cases(), convolution_cases(), pooling_cases(), network_cases(),
        recurrent_cases(), loss_cases(), write_cases(), foreach_cases(), layout_cases(), module_cases(),
        layer_cases()}) {
    all.insert(all.end(), table.begin(), table.end());
  }
  return all;
}

at::Tensor leaf(const at::Tensor& values) {
  return values.detach().clone().requires_grad_(true);
}

at::Tensor integers(std::initializer_list<int64_t> values, at::IntArrayRef sizes) {
  at::Tensor flat = at::tensor(at::ArrayRef<int64_t>(values), at::kLong);
  return sizes.empty() ? flat : flat.view(sizes);
}

Tensors one() {
  return {sample({4, 6})};
}

Tensors two() {
  return {sample({4, 6}), sample({4, 6})};
}

Tensors three() {
  return {sample({4, 6}), sample({4, 6}), sample({4, 6})};
}

Tensors vector() {
  return {sample({6})};
}

Tensors vectors() {
  return {sample({6}), sample({6})};
}

Tensors positive() {
  return {leaf(constant({4, 6}).abs() + 0.1)};
}

Tensors two_positive() {
  return {leaf(constant({4, 6}).abs() + 0.1), leaf(constant({4, 6}).abs() + 0.1)};
}

Tensors unit() {
  return {leaf(constant({4, 6}).tanh() * 0.9)};
}

Tensors fraction() {
  return {leaf(constant({4, 6}).sigmoid().clamp(0.05, 0.95))};
}

Tensors square() {
  return {sample({5, 5})};
}

Tensors regular() {
  return {leaf(constant({5, 5}) * 0.3 + at::eye(5) * 3)};
}

Tensors symmetric() {
  const at::Tensor a = constant({5, 5});
  return {leaf(a.mm(a.t()) + at::diag(at::arange(1, 6)))};
}

Tensors batch() {
  return {sample({2, 4, 5})};
}

Tensors signal() {
  return {sample({2, 3, 8})};
}

Tensors image() {
  return {sample({2, 4, 6, 6})};
}

Tensors volume() {
  return {sample({1, 2, 4, 4, 4})};
}

Tensors complex_one() {
  return {sample({4, 6}, at::kComplexFloat)};
}

Tensors complex_two() {
  return {sample({4, 6}, at::kComplexFloat), sample({4, 6}, at::kComplexFloat)};
}

}  // namespace ac2::test::sweep
