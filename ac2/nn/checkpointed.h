// Modules whose forward runs in a region.
//
//   torch::nn::Sequential model(ac2::checkpoint_wrapper(Block(256)),                  // a module you have
//                               ac2::Checkpointed<torch::nn::Linear>(256, 10));   // made as Linear is
//   model->forward(x).sum().backward();                                               // blocks are recomputed
//
// Everything but forward is M's own, because Checkpointed<M> derives from M: named_parameters(), torch::save and
// torch::load, to(), train(), apply(), printing, M's members, and its place in Sequential, ModuleList and ModuleDict.
// Archives of plain and checkpointed models can be loaded into each other. A checkpointed Sequential fits into a
// Sequential, which a plain one does not.
//
// forward takes what M's forward takes: several arguments, default arguments, tuples, and values that are no tensors.
// On the module itself, rather than through a holder, default arguments are those that M declares with
// FORWARD_HAS_DEFAULT_ARGS. If M's forward is not virtual, a call through a pointer or reference to M, such as
// `list->at<LinearImpl>(0).forward(x)`, runs M's forward without a region; write at<Checkpointed<LinearImpl>>(0). If
// M's forward is virtual, every call is in a region.
//
// Lifetime: the result of checkpoint_wrapper takes the place of the module that it was given; use the result from then
// on. The result shares that module's parameters, buffers and submodules, and has copies of everything else, such as
// the training mode and plain members. clone() is M's, and copies the settings. If the clone() of a parent makes the
// children anew in reset(), their settings are those that reset() gives them. Threads: those that M allows.
#pragma once

#include <torch/nn/pimpl.h>

#include <concepts>
#include <initializer_list>
#include <memory>
#include <type_traits>
#include <utility>

#include "ac2/nn/checkpointing.h"
#include "ac2/nn/internal/calls/checkpointed_arities.h"
#include "ac2/nn/internal/calls/checkpointed_calls.h"

namespace ac2 {

// For a module type (torch::nn::LinearImpl) a module type; for a holder (torch::nn::Linear) a holder of that.
// Checkpointed<M> is made as M is, and checkpointing() has its policy and its options. The second parameter is for
// specialisations alone; those for module types are in internal/calls/checkpointed_arities.h.
template <class M, class Forward>
class Checkpointed;

template <class Holder>
requires torch::detail::is_module_holder<Holder>::value class Checkpointed<Holder, void>
    : public torch::nn::ModuleHolder<Checkpointed<typename Holder::ContainedType>> {
  using Base = torch::nn::ModuleHolder<Checkpointed<typename Holder::ContainedType>>;
  using Calls = internal::CheckpointedCalls<typename Holder::ContainedType>;

 public:
  using Impl = Checkpointed<typename Holder::ContainedType>;
  using Base::Base;

  Checkpointed() = default;

  // The module, as a class on which forward() takes M's own default arguments and braces.
  Calls* operator->() { return this->get(); }
  const Calls* operator->() const { return this->get(); }

  template <class... Args>
  decltype(auto) operator()(Args&&... args) {
    return static_cast<Calls*>(this->get())->forward(std::forward<Args>(args)...);
  }
};

namespace internal {

template <class M>
std::shared_ptr<Checkpointed<M>> wrap(const std::shared_ptr<M>& module, Policy policy, CheckpointOptions options) {
  static_assert(
      std::is_copy_constructible_v<M>,
      "checkpoint_wrapper copies the module (not its tensors): make this one as Checkpointed<M>(...) instead");
  TORCH_CHECK(module != nullptr, "checkpoint_wrapper was given an empty module. Make the module first.");
  TORCH_CHECK(typeid(*module) == typeid(M), "checkpoint_wrapper was given a ", c10::demangle(typeid(*module).name()),
              " as a ", c10::demangle(typeid(M).name()),
              ", and would lose what it adds. Pass it as a pointer to its own type.");
  return std::make_shared<Checkpointed<M>>(FromModule(), std::as_const(*module), std::move(policy), std::move(options));
}

template <class M>
std::shared_ptr<Checkpointed<M>> wrap_holder(const std::shared_ptr<M>& module, Policy policy,
                                             CheckpointOptions options) {
  return wrap(module, std::move(policy), std::move(options));
}

template <class Holder>
requires torch::detail::is_module_holder<Holder>::value Checkpointed<Holder> wrap_holder(const Holder& module,
                                                                                         Policy policy,
                                                                                         CheckpointOptions options) {
  TORCH_CHECK(!module.is_empty(), "checkpoint_wrapper was given an empty module. Make the module first.");
  return Checkpointed<Holder>(wrap(module.ptr(), std::move(policy), std::move(options)));
}

}  // namespace internal

// A holder in, Checkpointed<Holder> out; a shared_ptr<M> in, shared_ptr<Checkpointed<M>> out.
// Throws c10::Error for an empty holder, and for a shared_ptr to a base class of the module.
template <class Holder>
auto checkpoint_wrapper(Holder module, Policy policy = "recompute_all", CheckpointOptions options = {}) {
  return internal::wrap_holder(module, std::move(policy), std::move(options));
}

// Without a policy: under a memory budget what fits is kept, and without one nothing.
template <class Holder>
auto checkpoint_wrapper(Holder module, CheckpointOptions options) {
  Policy policy = internal::policy_for(internal::scope_options(options));
  return checkpoint_wrapper(std::move(module), std::move(policy), std::move(options));
}

// With the options of a scope. Templates, so that a list in braces is CheckpointOptions.
template <class Holder, std::same_as<ScopeOptions> Options>
auto checkpoint_wrapper(Holder module, Policy policy, Options options) {
  return checkpoint_wrapper(std::move(module), std::move(policy), internal::checkpoint_options(std::move(options)));
}

template <class Holder, std::same_as<ScopeOptions> Options>
auto checkpoint_wrapper(Holder module, Options options) {
  return checkpoint_wrapper(std::move(module), internal::checkpoint_options(std::move(options)));
}

// `{}` for options: none is set.
template <class Holder>
auto checkpoint_wrapper(Holder module, Policy policy, std::initializer_list<internal::NoOption> /*none*/) {
  return checkpoint_wrapper(std::move(module), std::move(policy), CheckpointOptions());
}

template <class Holder>
auto checkpoint_wrapper(Holder module, std::initializer_list<internal::NoOption> /*none*/) {
  return checkpoint_wrapper(std::move(module), CheckpointOptions());
}

}  // namespace ac2
