#include "policies/quantize_ops.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/function.h>

#include <atomic>
#include <memory>
#include <utility>

#include "ac2/internal/forms/form_access.h"
#include "policies/internal/common/pack_ops.h"
#include "policies/internal/quantize/bit_mask.h"
#include "policies/internal/quantize/quantize.h"
#include "policies/internal/quantize/quantize_block.h"
#include "policies/internal/quantize/quantized.h"

namespace ac2::policies {

namespace {

// Autograd runs the gradients of later ops first. So whatever else needs a ReLU's result asks before its own gradient
// does, be it to compute something else again.
void check_sign_is_enough(const std::string& op, int64_t own_node) {
  const auto node = torch::autograd::get_current_node();
  const std::string name = node != nullptr ? node->name() : "something outside backward";
  TORCH_CHECK(name == "ReluBackward0" && node->sequence_nr() == static_cast<uint64_t>(own_node),
              "quantize_ops with 1 bit keeps of the results of ", op, " which numbers are positive, and ", name,
              name == "ReluBackward0" ? " of another op" : "", " needs the numbers. Quantise ", op,
              " with 8 or 4 bits, or list it only where nothing but its own gradient needs its result.");
}

// The results of one op, in `bits` as `form` does; with 1 bit, those of a ReLU as which numbers are positive.
class QuantizedResults final : public ac2::internal::HarmlessForm {
 public:
  QuantizedResults(FormPtr form, int64_t bits, std::string op)
      : form_(std::move(form)), bits_(bits), op_(std::move(op)) {}

  std::string name() const override { return bits_ == 1 ? "quantized 1 bit" : form_->name(); }
  bool is_exact() const override { return false; }
  bool takes(const FormInput& tensor) const override { return internal::may_have_two_values(tensor.dtype); }

  c10::IValue pack(const at::Tensor& tensor) const override {
    TORCH_CHECK(bits_ == 1 || tensor.scalar_type() == at::kBool || internal::can_quantize_on(tensor.device().type()),
                "quantize_ops cannot quantise the result of ", op_, ", which is on ", tensor.device(),
                "; expected one on the CPU, or on a CUDA device where ac2 was built for CUDA. Leave ", op_,
                " out, or use narrow_ops.");
    if (c10::IValue packed = form_->pack(tensor); !packed.isNone()) {
      return c10::ivalue::Tuple::create({kNoNode, std::move(packed)});
    }
    if (bits_ == 1 && (op_ == "aten::relu" || op_ == "aten::relu_")) {
      if (c10::IValue mask = internal::pack_positive(tensor); !mask.isNone()) {
        // Where a ReLU saves its own result, the node that does has the last number given.
        return c10::ivalue::Tuple::create({static_cast<int64_t>(at::sequence_number::peek()) - 1, std::move(mask)});
      }
    }
    return {};
  }

  at::Tensor unpack(const c10::IValue& packed) const override {
    const auto& parts = packed.toTupleRef().elements();
    if (parts[0].toInt() == kNoNode) {
      return form_->unpack(parts[1]);
    }
    check_sign_is_enough(op_, parts[0].toInt());
    return internal::unpack_bits(parts[1]);
  }

 private:
  static constexpr int64_t kNoNode = -1;

  const FormPtr form_;
  const int64_t bits_;
  const std::string op_;
};

}  // namespace

Policy quantize_ops(const std::vector<std::string>& ops, int64_t bits, QuantizeOptions options) {
  TORCH_CHECK(bits == 8 || bits == 4 || bits == 1, "quantize_ops was given ", bits,
              " bits; expected 8, 4, or 1 (masks). For 16 or a floating-point format of 8 bits see narrow_ops.");
  const auto regions = std::make_shared<std::atomic<uint64_t>>(0);
  return internal::pack_ops(
      "quantize_ops", ops, /*is_inexact=*/true, [bits, seed = options.seed, regions]() -> internal::MakeForm {
        // All results of a region draw from one sequence of random numbers, which another region's form does not.
        const uint64_t region = (*regions)++;
        const FormPtr form = bits == 1 ? forms::one_bit()
                                       : std::make_shared<const internal::Quantized>(
                                             static_cast<int>(bits), internal::mix_64(internal::mix_64(seed) + region),
                                             c10::str("quantized ", bits, " bits, seed ", seed, ", region ", region));
        return [bits, form](const std::string& op) -> FormPtr {
          return std::make_shared<const QuantizedResults>(form, bits, op);
        };
      });
}

}  // namespace ac2::policies
