#include "ac2/nn/internal/intercept/module_slots.h"

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/transformer.h>
#include <torch/nn/modules/transformercoder.h>

#include <utility>

#include "ac2/nn/internal/intercept/coder_layers.h"

namespace ac2::internal {
namespace {

using torch::nn::AnyModule;

AnyModule* if_holds(AnyModule& slot, const torch::nn::Module& module) {
  return !slot.is_empty() && slot.ptr().get() == &module ? &slot : nullptr;
}

}  // namespace

std::vector<Submodule> submodules(torch::nn::Module& model) {
  std::vector<Submodule> all(1);
  all[0].module = &model;
  // Children are put behind what is there, so that the last one is the next to be looked at, as named_modules() does.
  std::vector<Submodule> next;
  const auto push_children = [&](size_t parent) {
    const std::string prefix = all[parent].name.empty() ? "" : all[parent].name + ".";
    auto children = all[parent].module->named_children();
    for (size_t i = children.size(); i-- > 0;) {
      auto& child = children[i];
      next.push_back({prefix + child.key(), child.value(), child.value().get(), parent});
    }
  };
  push_children(0);
  while (!next.empty()) {
    all.push_back(std::move(next.back()));
    next.pop_back();
    push_children(all.size() - 1);
  }
  return all;
}

AnyModule* slot_of(torch::nn::Module& parent, const torch::nn::Module& module) {
  if (auto* sequential = dynamic_cast<torch::nn::SequentialImpl*>(&parent)) {
    for (AnyModule& entry : *sequential) {
      if (AnyModule* slot = if_holds(entry, module)) return slot;
    }
  }
  if (auto* transformer = dynamic_cast<torch::nn::TransformerImpl*>(&parent)) {
    if (AnyModule* slot = if_holds(transformer->encoder, module)) return slot;
    return if_holds(transformer->decoder, module);
  }
  if (auto* encoder = dynamic_cast<torch::nn::TransformerEncoderImpl*>(&parent)) return if_holds(encoder->norm, module);
  if (auto* decoder = dynamic_cast<torch::nn::TransformerDecoderImpl*>(&parent)) return if_holds(decoder->norm, module);
  return nullptr;
}

Access access(const std::vector<Submodule>& all, size_t index) {
  const Submodule& self = all[index];
  if (auto* checkpointed = dynamic_cast<CheckpointedModule*>(self.module)) return {checkpointed, nullptr, false, 0};
  if (index == 0) return {};
  const Submodule& parent = all[self.parent];
  if (AnyModule* slot = slot_of(*parent.module, *self.module)) return {nullptr, slot, false, 0};
  if (self.parent == 0) return {};
  const Submodule& coder = all[parent.parent];
  torch::nn::ModuleListImpl* layers = coder_layers(*coder.module);
  if (layers == nullptr || layers != parent.module || parent.parent == 0) return {};
  AnyModule* slot = slot_of(*all[coder.parent].module, *coder.module);
  if (slot == nullptr) return {};
  for (size_t i = 0; i < layers->size(); ++i) {
    if (layers->ptr(i).get() == self.module) return {nullptr, slot, true, i};
  }
  return {};
}

}  // namespace ac2::internal
