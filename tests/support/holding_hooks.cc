#include "tests/support/holding_hooks.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>
#include <optional>
#include <utility>

namespace ac2::test {

namespace {

using torch::autograd::Engine;
using torch::autograd::SavedVariableHooks;

class HoldingHook final : public SavedVariableHooks {
 public:
  void call_pack_hook(const at::Tensor& tensor) override { data_ = tensor.variable_data(); }
  at::Tensor call_unpack_hook() override { return data_; }
  // Not marked `override`, because LibTorch before 2.7 does not have the function. No test calls it.
  std::optional<std::pair<c10::SafePyObject, c10::SafePyObject>> retrieve_unpack_hook_data() const { return {}; }

 private:
  at::Tensor data_;
};

class HoldingEngine final : public Engine {
 public:
  // Leaked, as all engines are.
  static Engine& instance() {
    static auto* const engine = new HoldingEngine;
    return *engine;
  }
  std::unique_ptr<SavedVariableHooks> get_default_saved_variable_hooks() override {
    return std::make_unique<HoldingHook>();
  }

 private:
  HoldingEngine() = default;
};

Engine* engine_before = nullptr;

}  // namespace

HoldingHooks::HoldingHooks() {
  engine_before = &Engine::get_default_engine();
  torch::autograd::set_default_engine_stub(&HoldingEngine::instance);
}

HoldingHooks::~HoldingHooks() {
  torch::autograd::set_default_engine_stub([]() -> Engine& { return *engine_before; });
}

}  // namespace ac2::test
