// Which submodules of a model are meant: by name, by type, or by a function of your own.
//
//   ac2::ModuleSelector blocks = "blocks.*";                                // blocks.0, blocks.1, ...
//   ac2::ModuleSelector half = ac2::ModuleSelector("blocks.*").every(2); // blocks.0, blocks.2, ...
//   auto layers = ac2::ModuleSelector::type<torch::nn::TransformerEncoderLayer>();
//
// Threads: a selector is a value. If several threads use it at once, its function must be thread-safe.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ac2 {

class ModuleSelector {
 public:
  // `name` has dots, as in named_modules(). The name of the model itself is "".
  using Predicate = std::function<bool(const std::string& name, const torch::nn::Module& module)>;

  // A pattern for names, whose parts stand between dots: `*`, `?` and `[a-z]` match within one part, as in a shell;
  // `**` matches any number of parts. No pattern matches the model itself. Throws c10::Error for an empty pattern.
  ModuleSelector(std::string pattern);  // NOLINT(google-explicit-constructor)
  // The same. A null pointer is no pattern.
  ModuleSelector(const char* pattern)  // NOLINT(google-explicit-constructor)
      : ModuleSelector(std::string(pattern != nullptr ? pattern : "")) {}
  ModuleSelector(std::nullptr_t) = delete;
  // `description` names it in errors.
  ModuleSelector(Predicate predicate, std::string description);

  // Modules of type M, or of one derived from it. M is a module type or a holder.
  template <class M>
  static ModuleSelector type() {
    if constexpr (torch::detail::is_module_holder<M>::value) {
      return type<typename M::ContainedType>();
    } else {
      return ModuleSelector([](const std::string&,
                               const torch::nn::Module& module) { return dynamic_cast<const M*>(&module) != nullptr; },
                            "of type " + c10::demangle(typeid(M).name()));
    }
  }

  // Picks those of these modules that are at first, first + n, first + 2n and so on, in the order of named_modules().
  // Throws c10::Error if n is less than 1 or first is negative.
  ModuleSelector every(int64_t n, int64_t first = 0) const;

  // The positions in `names` of the modules that are picked, ascending. Throws c10::Error unless there are as many
  // `modules`.
  std::vector<size_t> select(const std::vector<std::string>& names,
                             const std::vector<const torch::nn::Module*>& modules) const;
  // "named "blocks.*"", and what every() says.
  std::string description() const;

 private:
  Predicate predicate_;
  std::string description_;
  int64_t every_ = 1;
  int64_t first_ = 0;
};

}  // namespace ac2
