// The values that a module type declared with FORWARD_HAS_DEFAULT_ARGS.
//
// C++ has no way to ask a function for its default arguments, and only instances tell the declared ones. They are noted
// when the first instance is made, and only read after that.
#pragma once

#include <c10/util/Exception.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/any_module_holder.h>

#include <cstddef>
#include <mutex>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ac2/nn/internal/calls/forward_of.h"

namespace ac2::internal {
struct ReadsDefaultArguments;
}

// AnyModuleHolder is what Module, and FORWARD_HAS_DEFAULT_ARGS in any module, let ask.
template <>
struct torch::nn::AnyModuleHolder<ac2::internal::ReadsDefaultArguments> {
  // By position. A parameter that has no default gets a value of no meaning. Empty if none were declared.
  static std::vector<AnyValue> read(Module& module) {
    if (!module._forward_has_default_args()) return {};
    return module._forward_populate_default_args(
        std::vector<AnyValue>(module._forward_num_required_args(), AnyValue(false)));
  }
};

namespace ac2::internal {

template <class M>
class DefaultArguments {
 public:
  static void note(torch::nn::Module& module) {
    std::call_once(noted_, [&] { values_ = torch::nn::AnyModuleHolder<ReadsDefaultArguments>::read(module); });
  }

  // The default argument of the parameter at `kIndex` of `Parameters` (a tuple of types).
  template <size_t kIndex, class Parameters>
  static auto get() {
    static_assert(kForwardTakesFirst<M, Parameters, kIndex>,
                  "forward() was called with too few arguments: this one has no default");
    using Value = std::decay_t<std::tuple_element_t<kIndex, Parameters>>;
    TORCH_CHECK(kIndex < values_.size(), "The default of argument #", kIndex, " of ", c10::demangle(typeid(M).name()),
                "::forward() is not known. Declare it with FORWARD_HAS_DEFAULT_ARGS in the module, pass the argument, "
                "or call through the holder that checkpoint_wrapper returned.");
    return values_[kIndex].template get<Value>();
  }

 private:
  static inline std::once_flag noted_;
  static inline std::vector<torch::nn::AnyValue> values_;
};

}  // namespace ac2::internal
