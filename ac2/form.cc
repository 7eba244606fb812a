#include "ac2/form.h"

#include <c10/util/Exception.h>

#include <utility>

#include "ac2/internal/forms/check_offload_options.h"
#include "ac2/internal/forms/form_access.h"
#include "ac2/internal/forms/functions_form.h"

namespace ac2 {

Form::Form() {
  internal::FormAccess::note_may_drop_tensors();
}

bool Form::takes(const FormInput& /*tensor*/) const {
  return true;
}

std::optional<FormEstimate> Form::estimate(const FormInput& /*tensor*/) const {
  return std::nullopt;
}

namespace {

// The library copies it by itself (tape/offload_form.h). The functions here are for a program that calls them.
class HostMemory final : public internal::HarmlessForm {
 public:
  explicit HostMemory(OffloadOptions options) : options_(options) {}

  std::string name() const override { return "host memory"; }
  bool is_exact() const override { return true; }
  bool takes(const FormInput& tensor) const override {
    return !tensor.device.is_cpu() && tensor.bytes > 0 && tensor.bytes >= options_.min_bytes;
  }
  c10::IValue pack(const at::Tensor& tensor) const override {
    return tensor.is_cpu() ? c10::IValue() : c10::ivalue::Tuple::create({tensor.cpu(), tensor.device()});
  }
  at::Tensor unpack(const c10::IValue& packed) const override {
    const auto& parts = packed.toTupleRef().elements();
    return parts[0].toTensor().to(parts[1].toDevice());
  }

 private:
  const OffloadOptions* copied_with() const override { return &options_; }

  const OffloadOptions options_;
};

}  // namespace

FormPtr forms::host_memory(OffloadOptions options) {
  internal::check_offload_options(options);
  return std::make_shared<const HostMemory>(options);
}

FormPtr forms::functions(std::function<c10::IValue(const at::Tensor&)> pack,
                         std::function<at::Tensor(const c10::IValue&)> unpack, bool exact) {
  TORCH_CHECK(pack && unpack, "forms::functions needs both functions, but ", pack ? "unpack" : "pack",
              " is empty. Give it one.");
  internal::FormAccess::note_may_drop_tensors();
  return std::make_shared<const internal::FunctionsForm>(SaveWithHooks{std::move(pack), std::move(unpack)}, exact);
}

}  // namespace ac2
