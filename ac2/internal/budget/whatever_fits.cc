#include "ac2/internal/budget/whatever_fits.h"

#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "ac2/internal/allocator/cuda_callback.h"
#include "ac2/internal/allocator/retrying_allocator.h"
#include "ac2/internal/allocator/shortage.h"

namespace ac2::internal {

namespace {

using Budgets = std::array<std::shared_ptr<Budget>, 2>;

Budgets& budgets() {
  // Leaked: graphs may outlive static destruction.
  static auto* budgets =
      new Budgets{Budget::without_number(CostSource::kMeasured), Budget::without_number(CostSource::kModelled)};
  return *budgets;
}

int64_t drop_values(c10::Device device, int64_t bytes) {
  int64_t freed = 0;
  for (const std::shared_ptr<Budget>& budget : budgets()) {
    if (freed < bytes) {
      freed += budget->relieve(device, bytes - freed);
    }
  }
  return freed;
}

std::string what_is_held(c10::Device) {
  int64_t bytes = 0;
  for (const std::shared_ptr<Budget>& budget : budgets()) {
    bytes += budget->most_held_bytes();
  }
  return absl::StrCat("ac2's regions under whatever_fits() have dropped all that they could. They hold ", bytes,
                      " bytes: what policies say MUST be saved, what cannot be computed again, what backward is using, "
                      "and what the program has too. ac2::explain_held() lists what all regions hold.");
}

}  // namespace

const std::shared_ptr<Budget>& whatever_fits_budget(CostSource costs) {
  set_shortage_handler(&drop_values, &what_is_held);
  RetryingAllocator::put_in_front();
  ask_us_where_cuda_runs_out();
  return budgets()[costs == CostSource::kMeasured ? 0 : 1];
}

}  // namespace ac2::internal
