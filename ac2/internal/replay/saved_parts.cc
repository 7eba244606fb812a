#include "ac2/internal/replay/saved_parts.h"

#include <optional>
#include <utility>
#include <vector>

#include "ac2/internal/libtorch/unrecorded.h"
#include "ac2/internal/replay/subclass_codec.h"

namespace ac2::internal {

namespace {

struct SavedParts : torch::CustomClassHolder {
  std::vector<std::unique_ptr<torch::autograd::SavedVariableHooks>> hooks;
  c10::IValue context;
};

}  // namespace

OpaqueForm opaque_form_of(const at::Tensor& tensor,
                          c10::function_ref<std::unique_ptr<torch::autograd::SavedVariableHooks>()> make_hook) {
  const Unrecorded unrecorded;
  OpaqueForm form;
  const SubclassCodec* codec = subclass_codec();
  std::optional<SubclassCodec::Parts> taken = codec != nullptr ? codec->take_apart(tensor) : std::nullopt;
  if (taken) {
    auto parts = c10::make_intrusive<SavedParts>();
    parts->context = std::move(taken->context);
    for (const at::Tensor& part : taken->tensors) {
      parts->hooks.push_back(make_hook());
      parts->hooks.back()->call_pack_hook(part);
    }
    form.parts = c10::IValue::make_capsule(std::move(parts));
    return form;
  }
  if (codec != nullptr) {
    form.class_name = codec->note_whole(tensor);
  }
  form.alias = tensor.variable_data();
  return form;
}

at::Tensor unpack_parts(const c10::IValue& parts) {
  if (parts.isNone()) {
    return {};
  }
  const auto saved = c10::static_intrusive_pointer_cast<SavedParts>(parts.toCapsule());
  std::vector<at::Tensor> tensors;
  for (const auto& hook : saved->hooks) {
    tensors.push_back(hook->call_unpack_hook());
  }
  return subclass_codec()->put_together(tensors, saved->context);
}

}  // namespace ac2::internal
