#include "ac2/internal/replay/whose_write.h"

#include <c10/util/Exception.h>
#include <torch/csrc/autograd/function.h>

#include <string>

#include "ac2/internal/libtorch/storage_names.h"

namespace ac2::internal {

namespace {

std::string reader() {
  const auto node = torch::autograd::get_current_node();
  return node != nullptr ? node->name() : "the program";
}

std::string what_is_read(Tape& tape, const TapeHook& hook, const ModifiedInPlace& error) {
  const Tape::Lock locked(tape);
  const std::string layout =
      hook.meta() != nullptr ? c10::str(" of sizes ", hook.meta()->sizes(), " and dtype ", hook.meta()->dtype()) : "";
  const Value* value = hook.value();
  if (value == error.value() || value == nullptr) {
    return c10::str(reader(), " reads it, a tensor", layout, ".");
  }
  const std::string result =
      value->producer() != nullptr ? "the result of " + describe(*value->producer()) : std::string("a tensor");
  return c10::str(reader(), " reads ", result, layout, ", which is computed again from it.");
}

}  // namespace

void throw_naming_the_tensor(const ModifiedInPlace& error, Tape& tape, const TapeHook& hook) {
  std::string name;
  for (const auto& [storage, its_name] : storage_names()) {
    if (storage == error.storage()) {
      name = c10::str("\n  The tensor is ", its_name, ".");
      break;
    }
  }
  TORCH_CHECK(false, error.msg(), name, "\n  ", what_is_read(tape, hook, error));
}

}  // namespace ac2::internal
