// A module in an AnyModule whose calls pass through us: in a region, and, for a Transformer's coder, with regions
// around its layers.
//
// Nothing of the module is touched: the AnyModule says that its module is still the one it had, and calls us.
//
// LibTorch has no forward hooks in C++, and forward() is not virtual. AnyModules are what can be exchanged.
//
// Rejected: replacing entries of a ModuleList (parents call them by type, past any replacement); finding out which
// module runs by the parameters of its ops (boundaries are a guess).
//
// Threads: forward as the module's own; everything else not beside it.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <typeinfo>
#include <utility>
#include <vector>

#include "ac2/nn/checkpointing.h"

namespace ac2::internal {

// By position among the coder's layers.
using LayerCheckpointing = std::map<size_t, Checkpointing>;

// A Module in order to fit into AnyModule; registered nowhere.
class InterceptedModule : public torch::nn::Module {
 public:
  explicit InterceptedModule(torch::nn::AnyModule inner) : inner_(std::move(inner)) {}

  // Makes `slot` call through an InterceptedModule, if it does not yet, and returns it.
  static InterceptedModule& intercept(torch::nn::AnyModule& slot);
  // Null if `slot` does not.
  static InterceptedModule* find(torch::nn::AnyModule& slot);
  static void remove(torch::nn::AnyModule& slot);

  torch::nn::AnyValue forward(std::vector<torch::nn::AnyValue> arguments);

  std::shared_ptr<torch::nn::Module> inner() const { return inner_.ptr(); }
  std::shared_ptr<InterceptedModule> deep_copy(std::optional<torch::Device> device) const;

  std::optional<Checkpointing> whole;
  LayerCheckpointing layers;

 private:
  torch::nn::AnyValue forward_inside(std::vector<torch::nn::AnyValue>& arguments);

  torch::nn::AnyModule inner_;
};

}  // namespace ac2::internal

// The holder inside of AnyModule. LibTorch's own takes a number of arguments fixed at compile time; this takes any
// number.
template <>
struct torch::nn::AnyModuleHolder<ac2::internal::InterceptedModule, std::vector<torch::nn::AnyValue>>
    : public AnyModulePlaceholder {
  using Intercepted = ac2::internal::InterceptedModule;

  explicit AnyModuleHolder(std::shared_ptr<Intercepted>&& intercepted)
      : AnyModulePlaceholder(typeid(Intercepted)), module(std::move(intercepted)) {}

  AnyValue forward(std::vector<AnyValue>&& arguments) override { return module->forward(std::move(arguments)); }
  std::shared_ptr<Module> ptr() override { return module->inner(); }
  std::unique_ptr<AnyModulePlaceholder> copy() const override { return std::make_unique<AnyModuleHolder>(*this); }
  std::unique_ptr<AnyModulePlaceholder> clone_module(std::optional<Device> device) const override {
    return std::make_unique<AnyModuleHolder>(module->deep_copy(device));
  }

  std::shared_ptr<Intercepted> module;  // AnyModule::get() reads it
};
