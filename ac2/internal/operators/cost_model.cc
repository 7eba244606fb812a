#include "ac2/internal/operators/cost_model.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "ac2/internal/libtorch/tensor_bytes.h"
#include "ac2/internal/operators/modelled_machine.h"

namespace ac2::internal {

namespace {

// Which size says how many multiplications and additions make an element of the result.
enum class Depth { kLastOfFirst, kLastOfSecond, kFilter, kAttention };

struct Product {
  std::string_view op;
  Depth depth;
};

constexpr std::array<Product, 12> kCostsOfProducts = {{
    {"aten::mm", Depth::kLastOfFirst},
    {"aten::bmm", Depth::kLastOfFirst},
    {"aten::matmul", Depth::kLastOfFirst},
    {"aten::linear", Depth::kLastOfFirst},
    {"aten::addmm", Depth::kLastOfSecond},
    {"aten::baddbmm", Depth::kLastOfSecond},
    {"aten::convolution", Depth::kFilter},
    {"aten::_convolution", Depth::kFilter},
    {"aten::mkldnn_convolution", Depth::kFilter},
    {"aten::cudnn_convolution", Depth::kFilter},
    {"aten::scaled_dot_product_attention", Depth::kAttention},
    {"aten::_scaled_dot_product_flash_attention_for_cpu", Depth::kAttention},
}};

const at::Tensor* tensor_at(c10::ArrayRef<c10::IValue> values, size_t i) {
  return i < values.size() && values[i].isTensor() && values[i].toTensor().defined() ? &values[i].toTensor() : nullptr;
}

double flops(const OpFacts& facts, c10::ArrayRef<c10::IValue> arguments, c10::ArrayRef<c10::IValue> results) {
  const std::string_view name = std::string_view(facts.name).substr(0, facts.name.find('.'));
  const auto* product =
      std::find_if(kCostsOfProducts.begin(), kCostsOfProducts.end(), [&](const Product& p) { return p.op == name; });
  const at::Tensor* result = tensor_at(results, 0);
  const at::Tensor* first = tensor_at(arguments, 0);
  const at::Tensor* second = tensor_at(arguments, 1);
  if (product == kCostsOfProducts.end() || result == nullptr || first == nullptr || second == nullptr ||
      first->dim() == 0 || second->dim() == 0) {
    return 0;
  }
  const auto elements = static_cast<double>(result->numel());
  switch (product->depth) {
    case Depth::kLastOfFirst:
      return 2 * elements * static_cast<double>(first->size(-1));
    case Depth::kLastOfSecond:
      return 2 * elements * static_cast<double>(second->size(-1));
    case Depth::kFilter:
      return 2 * elements * static_cast<double>(second->numel()) /
             static_cast<double>(std::max<int64_t>(second->size(0), 1));
    case Depth::kAttention:
      return second->dim() < 2 ? 0 : 4 * static_cast<double>(first->numel()) * static_cast<double>(second->size(-2));
  }
  return 0;
}

}  // namespace

double modelled_cost(const OpFacts& facts, c10::ArrayRef<c10::IValue> arguments, c10::ArrayRef<c10::IValue> results) {
  const auto bytes = static_cast<double>(bytes_of(arguments) + bytes_of(results));
  return kModelledCall +
         std::max(flops(facts, arguments, results) / kModelledFlopsPerNanosecond, bytes / kModelledBytesPerNanosecond);
}

}  // namespace ac2::internal
