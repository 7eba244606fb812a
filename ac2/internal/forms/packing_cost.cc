#include "ac2/internal/forms/packing_cost.h"

#include <c10/util/Exception.h>

#include <cmath>

#include "ac2/internal/operators/modelled_machine.h"

namespace ac2::internal {

FormInput form_input_of(const at::Tensor& whole) {
  return {
      .bytes = static_cast<int64_t>(whole.storage().nbytes()), .dtype = whole.scalar_type(), .device = whole.device()};
}

FormEstimate estimate_in_copies(const FormInput& tensor, int64_t bytes, double pack_copies, double unpack_copies) {
  const double copy = 2 * static_cast<double>(tensor.bytes) / kModelledBytesPerNanosecond;
  return {.bytes = bytes,
          .pack_cost = kModelledCall + pack_copies * copy,
          .unpack_cost = kModelledCall + unpack_copies * copy};
}

std::optional<FormEstimate> checked_estimate(const Form& form, const FormInput& tensor) {
  const std::optional<FormEstimate> estimate = form.estimate(tensor);
  const auto is_cost = [](double cost) { return std::isfinite(cost) && cost >= 0; };
  TORCH_CHECK(!estimate || (estimate->bytes >= 0 && is_cost(estimate->pack_cost) && is_cost(estimate->unpack_cost)),
              "The form \"", form.name(), "\" estimates ", estimate->bytes, " bytes and costs of ", estimate->pack_cost,
              " and ", estimate->unpack_cost, " for a tensor of ", tensor.bytes,
              " bytes; expected finite numbers, 0 or more.");
  return estimate;
}

PackingCost modelled_packing_cost(const Form& form, const FormInput& tensor) {
  const FormEstimate estimate =
      checked_estimate(form, tensor).value_or(estimate_in_copies(tensor, tensor.bytes, kPackCopies, kUnpackCopies));
  return {estimate.pack_cost, estimate.unpack_cost};
}

PackingCost measured_packing_cost(const Form& form, const FormInput& tensor, double pack_ticks) {
  const PackingCost modelled = modelled_packing_cost(form, tensor);
  const double share = modelled.pack > 0 ? modelled.unpack / modelled.pack : kUnpackCopies / kPackCopies;
  return {pack_ticks, share * pack_ticks};
}

}  // namespace ac2::internal
