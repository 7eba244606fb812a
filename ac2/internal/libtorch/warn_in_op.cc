#include "ac2/internal/libtorch/warn_in_op.h"

namespace ac2::internal {

namespace {

std::atomic<WarningTaker> installed{nullptr};

}  // namespace

void warn_in_op(const std::string& text) {
  const WarningTaker taker = installed.load(std::memory_order_acquire);
  if (taker == nullptr || !taker(text)) {
    TORCH_WARN(text);
  }
}

void set_warning_taker(WarningTaker taker) {
  installed.store(taker, std::memory_order_release);
}

}  // namespace ac2::internal
