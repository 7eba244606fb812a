#include "ac2/names.h"

#include <c10/util/Exception.h>

#include <memory>
#include <optional>
#include <string>

#include "ac2/internal/libtorch/unrecorded.h"
#include "ac2/internal/region/region.h"
#include "ac2/internal/region/tensor_decision.h"

namespace ac2 {

at::Tensor name_tensor(const at::Tensor& tensor, const char* name) {
  TORCH_CHECK(name != nullptr, "name_tensor was given a null pointer for a name. Give it one that a policy can list.");
  return name_tensor(tensor, std::string_view(name));
}

at::Tensor name_tensor(const at::Tensor& tensor, std::string_view name) {
  TORCH_CHECK(tensor.defined(), "name_tensor was given an undefined tensor for the name \"", name,
              "\". Name a tensor after it has been computed.");
  TORCH_CHECK(!name.empty(), "name_tensor was given an empty name for a tensor of sizes ", tensor.sizes(),
              ". Give it one that a policy can list.");
  internal::Region* region = internal::ThreadRegions::here().recording();
  if (region == nullptr || tensor.is_inference()) {
    return tensor;
  }
  // The region may be closed by a scope that a policy destroys.
  const std::shared_ptr<internal::Tape> tape = region->tape;
  const c10::OperatorHandle* op = nullptr;
  {
    const internal::Tape::Lock locked(*tape);
    internal::Value* value = locked->storages().find(tensor);
    if (value != nullptr) {
      value->set_name(std::string(name));
    }
    if (!region->policies.looks_at_names() || (value != nullptr && value->is_tagged())) {
      return tensor;
    }
    if (value != nullptr && value->producer() != nullptr) {
      op = &value->producer()->facts->op;  // facts live for ever
    }
  }
  const at::Tensor named = tensor;  // policies and pack functions may drop the program's
  std::optional<PolicyDecision> decision;
  {
    const internal::Unrecorded guard;
    decision = region->policies.decide_name({.name = name, .tensor = named, .op = op});
  }
  if (decision) {
    internal::decide_tensor(*tape, named, *decision, internal::DecidedBy::kName);
  }
  return named;
}

}  // namespace ac2
