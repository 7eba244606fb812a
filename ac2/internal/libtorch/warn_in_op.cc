#include "ac2/internal/libtorch/warn_in_op.h"

namespace ac2::internal {

namespace {

std::atomic<WarningTaker> handler_in_ops{nullptr};

}  // namespace

void warn_in_op(const std::string& text) {
  const WarningTaker taker = handler_in_ops.load(std::memory_order_acquire);
  if (taker == nullptr || !taker(text)) {
    TORCH_WARN(text);
  }
}

void set_warning_taker(WarningTaker taker) {
  handler_in_ops.store(taker, std::memory_order_release);
}

}  // namespace ac2::internal
