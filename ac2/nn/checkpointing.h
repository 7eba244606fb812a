// How a checkpointed module runs: its policy, its options, and what its last region recorded. Every Checkpointed<M> has
// a Checkpointing.
//
//   auto block = ac2::checkpoint_wrapper(Block(256));
//   block->checkpointing().set_policy(ac2::policies::save_compute_intensive());
//   ...
//   std::cout << block->checkpointing().last_trace()->stats().saved_bytes;
//
// Threads: forwards of one module may run on several threads at once. The setters must not run beside a forward.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "ac2/budget_option.h"
#include "ac2/form.h"
#include "ac2/nn/internal/calls/tensors_in.h"
#include "ac2/offload.h"
#include "ac2/policy.h"
#include "ac2/scope.h"
#include "ac2/trace.h"

namespace ac2::internal {
class CalledModule;
}

namespace ac2 {

// The options of a checkpointed module: those of a scope, and four of its own. They stand side by side and not in a
// member, so that checkpoint_wrapper(module, "speed", {.verify = true, .off_in_eval = true}) is one list.
struct CheckpointOptions {
  // What ScopeOptions says of the same names; a test holds the two lists against each other.
  BudgetOption memory_budget = {};
  bool modelled_costs = false;
  bool verify = false;
  bool timeline = false;
  std::optional<OffloadOptions> offload = std::nullopt;
  std::function<void(const std::vector<at::Tensor>&)> gather_units = nullptr;
  bool keep_for_next_backward = false;
  Forms forms = {};

  // Tags the tensors that forward returns MUST_SAVE. Under recompute_all everything is then recomputed except the
  // output, as with MindSpore's Cell.recompute(). Tensors in tuples, optionals and containers are found; tensors in a
  // struct of your own are not: tag those in forward.
  bool keep_output = false;
  // Tags the tensor arguments of forward MUST_CPU_OFFLOAD. On an accelerator they go to the host's memory, as
  // `offload` and ac2/offload.h say; on the CPU they are saved where they are. The arguments may be results of a
  // region around the module. OffloadOptions::inputs concerns all tensors that a region takes from outside instead.
  bool offload_inputs = false;
  // No region while the module is in evaluation mode.
  bool off_in_eval = false;
  // No region where no gradient is recorded (NoGradGuard, InferenceMode). This saves the time that recording takes; no
  // bytes are held there in either case.
  bool off_under_no_grad = false;
};

namespace internal {
ScopeOptions scope_options(const CheckpointOptions& options);
CheckpointOptions checkpoint_options(ScopeOptions options);
}  // namespace internal

class Checkpointing {
 public:
  explicit Checkpointing(Policy policy = "recompute_all", CheckpointOptions options = {});
  ~Checkpointing();
  // A copy has the settings, and is for a module of the same class and name, but has no last_trace().
  Checkpointing(const Checkpointing& other);
  Checkpointing& operator=(const Checkpointing& other);

  const Policy& policy() const { return policy_; }
  void set_policy(Policy policy) { policy_ = std::move(policy); }
  const CheckpointOptions& options() const { return options_; }
  void set_options(CheckpointOptions options) { options_ = std::move(options); }
  // While it is off, forward runs as if the module were not wrapped: plain, or as part of the regions around it.
  bool is_on() const { return on_; }
  void set_on(bool on) { on_ = on; }

  // The trace of the last forward; inside another region it is that region's trace. Null before the first forward.
  // Until the next forward the module holds the memory of the trace itself (64 KiB, and more after some hundred ops),
  // but no tensor.
  std::shared_ptr<const Trace> last_trace() const;

  // The class of the module, and what apply_checkpointing() knows of it besides: policies::by_module goes by both.
  void set_class(const std::type_info& type);
  void set_module(std::shared_ptr<const internal::CalledModule> module) { module_ = std::move(module); }

  // Calls forward() with `inputs`, which it may move from, in a region if the options say so.
  template <class Forward, class... Inputs>
  decltype(auto) run(bool is_training, Forward&& forward, const Inputs&... inputs) {
    const InModule inside(*this);
    if (!opens_region(is_training)) return std::forward<Forward>(forward)();
    PolicyScope scope(policy_, internal::scope_options(options_));
    remember(scope.trace());
    if (options_.offload_inputs) (internal::for_each_tensor(inputs, &Checkpointing::offload), ...);
    if constexpr (std::is_void_v<std::invoke_result_t<Forward>>) {
      std::forward<Forward>(forward)();
    } else {
      return finish(std::forward<Forward>(forward)());
    }
  }

 private:
  // While it lives, the thread is in the module.
  class InModule {
   public:
    explicit InModule(const Checkpointing& checkpointing);
    ~InModule();
    InModule(const InModule&) = delete;
    InModule& operator=(const InModule&) = delete;

   private:
    bool entered_ = false;
    size_t depth_ = 0;
  };

  bool opens_region(bool is_training) const;
  void remember(std::shared_ptr<const Trace> trace);
  static void offload(const at::Tensor& input);
  static void save(const at::Tensor& output);

  template <class Result>
  Result finish(Result&& result) const {
    if (options_.keep_output) internal::for_each_tensor(result, &Checkpointing::save);
    return std::forward<Result>(result);
  }

  Policy policy_;
  CheckpointOptions options_;
  bool on_ = true;
  std::shared_ptr<const internal::CalledModule> module_;  // null if nothing is known
  // With its lock, which is not for public headers.
  struct LastTrace;
  const std::unique_ptr<LastTrace> last_trace_;
};

// The second base class of every Checkpointed<M>, by which code that does not know M reaches its settings:
// `dynamic_cast<CheckpointedModule*>(&module)`.
class CheckpointedModule {
 public:
  virtual Checkpointing& checkpointing() = 0;
  virtual const Checkpointing& checkpointing() const = 0;

 protected:
  ~CheckpointedModule() = default;
};

}  // namespace ac2
