#include "ac2/internal/region/engine.h"

#include <c10/core/AutogradState.h>
#include <torch/csrc/autograd/engine.h>

#include <atomic>
#include <memory>
#include <utility>

#include "ac2/internal/libtorch/out_of_memory.h"
#include "ac2/internal/libtorch/torch_compat.h"
#include "ac2/internal/locks/fork_locks.h"
#include "ac2/internal/locks/mutex.h"
#include "ac2/internal/region/region.h"
#include "ac2/internal/replay/backward_run.h"
#include "ac2/internal/replay/saved_tensor_hook.h"

namespace ac2::internal {

namespace {

using torch::autograd::Engine;
using NodePtr = NodePtrOf<torch::autograd::Edge>;
using Opener = void (*)();

std::atomic<Opener> opener{nullptr};
std::atomic<void (*)()> called_before{nullptr};

// Null if the thread's tensors are saved as autograd itself does.
Region* saving_region() {
  ThreadRegions& regions = ThreadRegions::here();
  const Opener open = opener.load(std::memory_order_acquire);
  if (open != nullptr && regions.begins_a_graph()) {
    open();
    regions.began_within_op();
  }
  Region* const region = regions.saving();
  if (open != nullptr && region != nullptr) {
    regions.include_key_again();
  }
  return region;
}

// While it lives, a backward that this thread begins runs on it as a whole, as torch.autograd's
// set_multithreading_enabled(False) says, if it makes a graph and a region records here. What the backward runs is
// recorded then: autograd has threads of its own for accelerators, and the region is this thread's.
class OnThisThread {
 public:
  explicit OnThisThread(bool create_graph) {
    c10::AutogradState& state = c10::AutogradState::get_tls_state();
    if (create_graph && state.get_multithreading_enabled() && ThreadRegions::here().recording() != nullptr) {
      state.set_multithreading_enabled(false);
      is_changed_ = true;
    }
  }
  ~OnThisThread() {
    if (is_changed_) {
      c10::AutogradState::get_tls_state().set_multithreading_enabled(true);
    }
  }
  OnThisThread(const OnThisThread&) = delete;
  OnThisThread& operator=(const OnThisThread&) = delete;

 private:
  bool is_changed_ = false;
};

class RegionEngine final : public EngineInFront<Engine> {
 public:
  // Leaked: the engine's threads outlive static destruction.
  static RegionEngine& instance() {
    static auto* engine = new RegionEngine;
    return *engine;
  }
  static Engine& stub() { return instance(); }

  torch::autograd::variable_list execute(const torch::autograd::edge_list& roots,
                                         const torch::autograd::variable_list& inputs, bool keep_graph,
                                         bool create_graph, bool accumulate_grad,
                                         const torch::autograd::edge_list& outputs) override {
    if (const auto call = called_before.load(std::memory_order_acquire)) {
      call();
    }
    const BackwardRun run;
    const OnThisThread here(create_graph);
    return with_out_of_memory_note(
        [&] { return behind().execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs); });
  }

  c10::intrusive_ptr<at::ivalue::Future> execute_with_graph_task(
      const std::shared_ptr<torch::autograd::GraphTask>& graph_task, NodePtr graph_root,
      torch::autograd::InputBuffer&& input_buffer) override {
    return behind().execute_with_graph_task(graph_task, std::move(graph_root), std::move(input_buffer));
  }

  std::unique_ptr<torch::autograd::AnomalyMetadata> make_anomaly_metadata() override {
    return behind().make_anomaly_metadata();
  }

  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    if (Region* region = saving_region()) {
      return SavedTensorHook::make(region->tape);
    }
    return behind().get_default_saved_variable_hooks();
  }

  void thread_on_exception(const std::shared_ptr<torch::autograd::GraphTask>& graph_task, const NodePtr& fn,
                           std::exception& e) override {
    behind().thread_on_exception(graph_task, fn, e);
  }

  void thread_init(int device, const std::shared_ptr<torch::autograd::ReadyQueue>& ready_queue,
                   bool should_increment) override {
    behind().thread_init(device, ready_queue, should_increment);
  }

 private:
  RegionEngine() = default;
};

}  // namespace

void install_engine() {
  RegionEngine& ours = RegionEngine::instance();
  if (&Engine::get_default_engine() == &ours) {
    return;  // without the mutex: every region comes here
  }
  static auto& mutex = ForkLocks::make_first<Mutex>();
  const MutexLock lock(mutex);
  Engine& current = Engine::get_default_engine();
  if (&current == &ours) {
    return;
  }
  // First. Pairs with the acquire of behind(), on threads that have come to our engine before; those that come by the
  // stub are ordered by the stub, which is an atomic of LibTorch's.
  ours.put_in_front_of(current);
  torch::autograd::set_default_engine_stub(&RegionEngine::stub);
}

void open_regions_by(void (*open)()) {
  opener.store(open, std::memory_order_release);
}

void before_backwards(void (*call)()) {
  called_before.store(call, std::memory_order_release);
}

}  // namespace ac2::internal
