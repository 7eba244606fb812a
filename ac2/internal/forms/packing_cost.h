// The cost of packing a value and of unpacking it for a use: the one place for budgets and for plans.
//
// Costs are modelled or measured as those of ops are (operators/cost_source.h). Modelled ones come from the form's
// estimate. Without an estimate both take as long as eight copies of the tensor, of which unpacking is two: so it is
// for 8 bits a number (docs/quantisation.md). Where packing alone was measured, unpacking is taken to have the share of
// it that it has by the model.
//
// Threads: any. Calls Form::estimate(), which is the program's, so that no lock may be held.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "ac2/form.h"

namespace ac2::internal {

// Packing 8 bits a number takes as long as so many copies of the tensor, and so does unpacking them.
constexpr double kPackCopies = 6;
constexpr double kUnpackCopies = 2;

struct PackingCost {
  double pack = 0;
  double unpack = 0;

  double both() const { return pack + unpack; }
};

// `whole` is a whole storage.
FormInput form_input_of(const at::Tensor& whole);

// Form::estimate(). Throws c10::Error for a number of bytes or a cost that is negative or no number.
std::optional<FormEstimate> checked_estimate(const Form& form, const FormInput& tensor);

PackingCost modelled_packing_cost(const Form& form, const FormInput& tensor);
PackingCost measured_packing_cost(const Form& form, const FormInput& tensor, double pack_ticks);

// The estimate of a form that leaves `bytes` of the tensor, and of which packing and unpacking take as long as so many
// copies of it.
FormEstimate estimate_in_copies(const FormInput& tensor, int64_t bytes, double pack_copies, double unpack_copies);

}  // namespace ac2::internal
