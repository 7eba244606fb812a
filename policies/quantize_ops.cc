#include "policies/quantize_ops.h"

#include <ATen/SequenceNumber.h>
#include <ATen/ops/clone.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/function.h>

#include <atomic>
#include <memory>
#include <utility>

#include "ac2/internal/region/form_name.h"
#include "policies/internal/common/pack_ops.h"
#include "policies/internal/quantize/bit_mask.h"
#include "policies/internal/quantize/quantize.h"
#include "policies/internal/quantize/quantize_block.h"

namespace ac2::policies {

namespace {

constexpr const char* kAnyOp = "an op";

enum class Form : int64_t { EXACT, BITS, POSITIVE, CODES };

c10::IValue tagged(Form form, c10::IValue packed, int64_t node = 0) {
  return c10::ivalue::Tuple::create({static_cast<int64_t>(form), std::move(packed), node});
}

// The random numbers of a region.
struct Draws {
  uint64_t key;
  std::atomic<uint64_t> packed{0};

  uint64_t next() { return internal::mix_64(key + packed++); }
};

c10::IValue pack(const at::Tensor& tensor, int bits, const std::string& op, Draws& draws) {
  const at::ScalarType type = tensor.scalar_type();
  if (type == at::kBool || internal::can_quantize(type)) {
    if (c10::IValue mask = internal::pack_two_valued(tensor); !mask.isNone()) {
      return tagged(Form::BITS, std::move(mask));
    }
  }
  if (internal::can_quantize(type) && bits > 1) {
    TORCH_CHECK(internal::can_quantize_on(tensor.device().type()), "quantize_ops cannot quantise the result of ", op,
                ", which is on ", tensor.device(),
                "; expected one on the CPU, or on a CUDA device where ac2 was built for CUDA. Leave ", op,
                " out, or use narrow_ops.");
    return tagged(Form::CODES, internal::quantize(tensor, bits, draws.next()));
  }
  if (bits == 1 && (op == "aten::relu" || op == "aten::relu_")) {
    if (c10::IValue mask = internal::pack_positive(tensor); !mask.isNone()) {
      // Where a ReLU saves its own result, the node that does has the last number given.
      return tagged(Form::POSITIVE, std::move(mask), static_cast<int64_t>(at::sequence_number::peek()) - 1);
    }
  }
  // A copy, not the tensor itself: the program may write to it, and nothing would copy it first.
  return tagged(Form::EXACT, at::clone(tensor));
}

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

at::Tensor unpack(const c10::IValue& packed, const std::string& op) {
  const auto& parts = packed.toTupleRef().elements();
  switch (static_cast<Form>(parts[0].toInt())) {
    case Form::CODES:
      return internal::dequantize(parts[1]);
    case Form::POSITIVE:
      check_sign_is_enough(op, parts[2].toInt());
      return internal::unpack_bits(parts[1]);
    case Form::BITS:
      return internal::unpack_bits(parts[1]);
    case Form::EXACT:
      break;
  }
  return parts[1].toTensor();
}

}  // namespace

Policy quantize_ops(const std::vector<std::string>& ops, int64_t bits, QuantizeOptions options) {
  TORCH_CHECK(bits == 8 || bits == 4 || bits == 1, "quantize_ops was given ", bits,
              " bits; expected 8, 4, or 1 (masks). For 16 or a floating-point format of 8 bits see narrow_ops.");
  const auto regions = std::make_shared<std::atomic<uint64_t>>(0);
  return internal::pack_ops(
      "quantize_ops", ops, /*is_inexact=*/true, [bits, seed = options.seed, regions]() -> internal::MakeHooks {
        const auto draws = std::make_shared<Draws>();
        draws->key = internal::mix_64(internal::mix_64(seed) + (*regions)++);
        return [bits, draws](const std::string& op) {
          return SaveWithHooks{
              [bits, draws, op](const at::Tensor& tensor) { return pack(tensor, static_cast<int>(bits), op, *draws); },
              [op](const c10::IValue& packed) { return unpack(packed, op); }};
        };
      });
}

PolicyDecision quantized_form(int64_t bits, QuantizeOptions options) {
  TORCH_CHECK(bits == 8 || bits == 4, "quantized_form was given ", bits, " bits; expected 8 or 4.");
  const auto draws = std::make_shared<Draws>();
  draws->key = internal::mix_64(options.seed);
  SaveWithHooks functions{
      [bits, draws](const at::Tensor& tensor) {
        const at::ScalarType type = tensor.scalar_type();
        const bool has_codes = internal::can_quantize(type) && internal::can_quantize_on(tensor.device().type());
        return type == at::kBool || has_codes ? pack(tensor, static_cast<int>(bits), kAnyOp, *draws) : c10::IValue();
      },
      [](const c10::IValue& packed) { return unpack(packed, kAnyOp); }};
  return ac2::internal::named_form(std::move(functions), c10::str("quantized ", bits, " bits, seed ", options.seed));
}

}  // namespace ac2::policies
