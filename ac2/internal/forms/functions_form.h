// The form that a SaveWithHooks is: two functions of the program's.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "ac2/internal/forms/form_access.h"

namespace ac2::internal {

class FunctionsForm final : public HarmlessForm {
 public:
  FunctionsForm(SaveWithHooks functions, bool exact)
      : functions_(std::make_shared<const SaveWithHooks>(std::move(functions))), exact_(exact) {}

  std::string name() const override { return "functions " + std::to_string(number_); }
  bool is_exact() const override { return exact_; }
  c10::IValue pack(const at::Tensor& tensor) const override {
    packs_->began.store(true, std::memory_order_relaxed);
    return functions_->pack(tensor);
  }
  at::Tensor unpack(const c10::IValue& packed) const override { return functions_->unpack(packed); }

  const std::shared_ptr<const SaveWithHooks>& functions() const { return functions_; }

  // What outlives the form.
  struct Packs {
    std::atomic<bool> began{false};  // pack was called, ever
    std::atomic<bool> told{false};   // a policy has told that it never was
  };
  const std::shared_ptr<Packs>& packs() const { return packs_; }

 private:
  static inline std::atomic<uint64_t> made_{0};

  const std::shared_ptr<const SaveWithHooks> functions_;
  const std::shared_ptr<Packs> packs_ = std::make_shared<Packs>();
  const bool exact_;
  const uint64_t number_ = ++made_;
};

// Null for every other form. For a form that a policy decided, None is as good a packed value as any other.
inline const FunctionsForm* as_functions(const Form& form) {
  return dynamic_cast<const FunctionsForm*>(&form);
}

// For errors.
inline std::string described(const Form& form) {
  return as_functions(form) != nullptr ? "a SaveWithHooks" : "the form \"" + form.name() + "\"";
}

}  // namespace ac2::internal
