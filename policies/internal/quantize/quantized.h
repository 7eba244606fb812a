// The form of 8 or 4 bits a number, and of one where two values are all there is.
//
//   const auto form = std::make_shared<const Quantized>(8, key, "quantized 8 bits, seed 0");
//
// Rounding draws from `key` and from how many tensors the form has packed before. Threads: any.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <utility>

#include "ac2/internal/forms/form_access.h"
#include "policies/internal/quantize/quantize_block.h"

namespace ac2::policies::internal {

class Quantized final : public ac2::internal::HarmlessForm {
 public:
  // `bits`: 8 or 4.
  Quantized(int bits, uint64_t key, std::string name) : bits_(bits), key_(key), name_(std::move(name)) {}

  std::string name() const override { return name_; }
  bool is_exact() const override { return false; }
  bool takes(const FormInput& tensor) const override;
  // What it comes to without tensors of two values.
  std::optional<FormEstimate> estimate(const FormInput& tensor) const override;
  c10::IValue pack(const at::Tensor& tensor) const override;
  at::Tensor unpack(const c10::IValue& packed) const override;

 private:
  const int bits_;
  const uint64_t key_;
  const std::string name_;
  mutable std::atomic<uint64_t> packed_{0};
};

// Whether pack_two_valued() may be worth a look.
bool may_have_two_values(at::ScalarType type);

}  // namespace ac2::policies::internal
