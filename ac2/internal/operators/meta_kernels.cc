#include "ac2/internal/operators/meta_kernels.h"

#include <ATen/ExpandUtils.h>
#include <ATen/OpMathType.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/result_type.h>
#include <c10/core/DispatchKey.h>
#include <torch/library.h>

#include <array>
#include <cstddef>
#include <new>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace ac2::internal {

namespace {

using OptionalTensor = std::optional<at::Tensor>;
using ThreeTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

at::Tensor dense_like(const at::Tensor& tensor) {
  return at::empty_like(tensor, at::MemoryFormat::Contiguous);
}

ThreeTensors layer_norm(const at::Tensor& input, at::IntArrayRef normalized_shape, const OptionalTensor&,
                        const OptionalTensor&, double) {
  std::vector<int64_t> sizes = input.sizes().vec();
  TORCH_CHECK(sizes.size() >= normalized_shape.size(), "layer_norm got an input of sizes ", input.sizes(),
              "; expected it to end in ", normalized_shape, ".");
  std::fill(sizes.end() - static_cast<int64_t>(normalized_shape.size()), sizes.end(), 1);
  const auto options = input.options().dtype(at::toOpMathType(input.scalar_type()));
  return {dense_like(input), at::empty(sizes, options), at::empty(sizes, options)};
}

at::Tensor gradient_like(bool wanted, const OptionalTensor& tensor) {
  return wanted && tensor && tensor->defined() ? dense_like(*tensor) : at::Tensor();
}

ThreeTensors layer_norm_backward(const at::Tensor&, const at::Tensor& input, at::IntArrayRef, const at::Tensor&,
                                 const at::Tensor&, const OptionalTensor& weight, const OptionalTensor& bias,
                                 std::array<bool, 3> mask) {
  return {gradient_like(mask[0], input), gradient_like(mask[1], weight), gradient_like(mask[2], bias)};
}

// The result is laid out as the query is, whatever its strides. An op that takes the result may copy it or not.
std::tuple<at::Tensor, at::Tensor> attention(const at::Tensor& query, const at::Tensor&, const at::Tensor&, double,
                                             bool, const OptionalTensor&, std::optional<double>) {
  const int64_t batch = query.size(0), heads = query.size(1), time = query.size(2);
  return {
      at::empty_like(query),
      at::empty({batch, time, heads}, query.options().dtype(at::toOpMathType(query.scalar_type()))).transpose(1, 2)};
}

ThreeTensors attention_backward(const at::Tensor&, const at::Tensor& query, const at::Tensor& key,
                                const at::Tensor& value, const at::Tensor&, const at::Tensor&, double, bool,
                                const OptionalTensor&, std::optional<double>) {
  return {at::empty_like(query), at::empty_like(key), at::empty_like(value)};
}

at::Tensor embedding(const at::Tensor& weight, const at::Tensor& indices, int64_t, bool, bool) {
  std::vector<int64_t> sizes = indices.sizes().vec();
  sizes.push_back(weight.size(1));
  return at::empty(sizes, weight.options());
}

at::Tensor embedding_backward(const at::Tensor& gradient, const at::Tensor&, int64_t rows, int64_t, bool) {
  return at::empty({rows, gradient.size(-1)}, gradient.options());
}

at::Tensor where(const at::Tensor& condition, const at::Tensor& a, const at::Tensor& b) {
  const auto sizes = at::infer_size(at::infer_size(condition.sizes(), a.sizes()), b.sizes());
  return at::empty(sizes, condition.options().dtype(at::result_type(a, b)));
}

template <class Fn>
void add(torch::Library& library, const char* name, const char* overload, Fn* kernel) {
  const auto op = c10::Dispatcher::singleton().findSchema({std::string("aten::") + name, overload});
  if (op && !op->hasKernelForDispatchKey(c10::DispatchKey::Meta)) {
    library.impl(*overload == '\0' ? std::string(name).c_str() : (std::string(name) + "." + overload).c_str(), kernel);
  }
}

}  // namespace

void install_meta_kernels() {
  // Never destroyed, because a kernel must not be deregistered while another thread may run it. Not on the heap: a
  // pointer that is never read may be optimised away, and LeakSanitizer would then report what it pointed to.
  alignas(torch::Library) static std::byte memory[sizeof(torch::Library)];
  static const auto* library = [] {
    auto* made = new (memory) torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__, __LINE__);
    add(*made, "native_layer_norm", "", &layer_norm);
    add(*made, "native_layer_norm_backward", "", &layer_norm_backward);
    add(*made, "_scaled_dot_product_flash_attention_for_cpu", "", &attention);
    add(*made, "_scaled_dot_product_flash_attention_for_cpu_backward", "", &attention_backward);
    add(*made, "embedding", "", &embedding);
    add(*made, "embedding_dense_backward", "", &embedding_backward);
    add(*made, "where", "self", &where);
    return made;
  }();
  static_cast<void>(library);
}

}  // namespace ac2::internal
