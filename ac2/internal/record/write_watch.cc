#include "ac2/internal/record/write_watch.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/SmallVector.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "ac2/internal/libtorch/torch_compat.h"
#include "ac2/internal/operators/new_operators.h"
#include "ac2/internal/operators/op_facts.h"
#include "ac2/internal/operators/op_tables.h"
#include "ac2/internal/record/typed_writes.h"
#include "ac2/internal/record/watched_write.h"

namespace ac2::internal {

namespace {

void watch(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::DispatchKeySet below = keys & kBelowWatchKey;
  if (!WatchedWrite::are_needed()) {
    op.redispatchBoxed(below, stack);
    return;
  }
  const OpFacts& facts = op_facts(op);
  const WatchedWrite write(facts, c10::ArrayRef<c10::IValue>(*stack).slice(stack->size() - facts.num_arguments));
  op.redispatchBoxed(below, stack);
  write.ran();
}

bool writes(const c10::OperatorHandle& op) {
  const std::vector<c10::Argument>& arguments = op.schema().arguments();
  return find_hidden_writes(op.schema().name()) != nullptr ||
         std::any_of(arguments.begin(), arguments.end(), [](const c10::Argument& argument) {
           return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
         });
}

// An op that is made of others is seen by way of those.
bool is_watched(const c10::OperatorHandle& op) {
  return op.hasSchema() && writes(op) && !op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
         !op.hasKernelForDispatchKey(kWatchKey);
}

class WriteWatch {
 public:
  // Leaked with its registrations: ops may run during static destruction.
  static WriteWatch& instance() {
    static auto* watch = new WriteWatch;
    return *watch;
  }

  void look_at_new_operators() {
    operators_.for_each([this](const c10::OperatorHandle& op) {
      if (is_watched(op)) {
        kernels_.push_back(c10::Dispatcher::singleton().registerImpl(
            op.operator_name(), kWatchKey, c10::KernelFunction::makeFromBoxedFunction<&watch>(), std::nullopt, nullptr,
            "ac2, watching for writes"));
      }
    });
  }

 private:
  WriteWatch() { register_typed_writes(); }

  NewOperators operators_;
  std::vector<c10::RegistrationHandleRAII> kernels_;
};

}  // namespace

void install_write_watch() {
  WriteWatch::instance().look_at_new_operators();
}

}  // namespace ac2::internal
