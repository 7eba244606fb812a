#include "ac2/internal/libtorch/program_holdings.h"

#include <atomic>

namespace ac2::internal {

namespace {

std::atomic<ProgramHoldings> installed_holdings{nullptr};

}  // namespace

void set_program_holdings(ProgramHoldings holdings) {
  // Pairs with the acquire of program_holdings(), for what the function finds set up.
  installed_holdings.store(holdings, std::memory_order_release);
}

std::vector<std::string> program_holdings() {
  const ProgramHoldings holdings = installed_holdings.load(std::memory_order_acquire);
  return holdings != nullptr ? holdings() : std::vector<std::string>();
}

}  // namespace ac2::internal
