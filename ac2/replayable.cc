#include "ac2/replayable.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "ac2/internal/libtorch/autograd_node.h"
#include "ac2/internal/libtorch/spelling.h"
#include "ac2/internal/libtorch/tensor_meta.h"
#include "ac2/internal/locks/fork_locks.h"
#include "ac2/internal/locks/mutex.h"
#include "ac2/internal/record/declared_kernel.h"

namespace ac2::internal {

namespace {

using Tensors = std::vector<at::Tensor>;

constexpr const char* kNamespace = "replayable";

// The types to which autocast casts on the devices of some tensors, where it is on. A replay has the dispatch state of
// forward, which says that it is on, and not these (op_environment.h), which no op of LibTorch's below autocast reads.
using AutocastTypes = std::vector<std::pair<c10::DeviceType, c10::ScalarType>>;

AutocastTypes autocast_types_of(const Tensors& tensors) {
  AutocastTypes types;
  for (const at::Tensor& tensor : tensors) {
    const c10::DeviceType device = tensor.device().type();
    const bool is_known = std::ranges::any_of(types, [device](const auto& type) { return type.first == device; });
    if (!is_known && at::autocast::is_autocast_available(device) && at::autocast::is_autocast_enabled(device)) {
      types.emplace_back(device, at::autocast::get_autocast_dtype(device));
    }
  }
  return types;
}

class WithAutocastTypes {
 public:
  explicit WithAutocastTypes(const AutocastTypes& types) {
    for (const auto& [device, type] : types) {
      before_.emplace_back(device, at::autocast::get_autocast_dtype(device));
      at::autocast::set_autocast_dtype(device, type);
    }
  }
  ~WithAutocastTypes() {
    for (const auto& [device, type] : before_) {
      at::autocast::set_autocast_dtype(device, type);
    }
  }
  WithAutocastTypes(const WithAutocastTypes&) = delete;
  WithAutocastTypes& operator=(const WithAutocastTypes&) = delete;

 private:
  AutocastTypes before_;
};

// Tensor.numpy() marks the tensor's storage for ever: regions take it for memory that may change at any time. The
// arrays of a function that is an op end with the call, so that the marks of its arguments are as they were. Not
// guaranteed: the mark of a call of numpy() for the same storage on another thread meanwhile is taken away too.
class SameResizability {
 public:
  explicit SameResizability(const Tensors& tensors) {
    for (const at::Tensor& tensor : tensors) {
      if (has_plain_storage(tensor) && tensor.storage()) {
        before_.emplace_back(tensor.storage(), tensor.storage().resizable());
      }
    }
  }
  ~SameResizability() {
    for (const auto& [storage, resizable] : before_) {
      storage.unsafeGetStorageImpl()->set_resizable(resizable);
    }
  }
  SameResizability(const SameResizability&) = delete;
  SameResizability& operator=(const SameResizability&) = delete;

 private:
  std::vector<std::pair<c10::Storage, bool>> before_;
};

// Finds tensors to which ops of a function write, by their versions. Holds no tensor: the function may let go of them.
class WritesToArguments {
 public:
  explicit WritesToArguments(const Tensors& tensors) {
    for (const at::Tensor& tensor : tensors) {
      const c10::VariableVersion& version = tensor.unsafeGetTensorImpl()->version_counter();
      before_.emplace_back(version, version.enabled() ? version.current_version() : 0);
    }
  }

  void check(const std::string& name) const {
    for (size_t i = 0; i < before_.size(); ++i) {
      const auto& [version, before] = before_[i];
      TORCH_CHECK(
          !version.enabled() || version.current_version() == before, name, " has written to tensor ", i,
          " of its arguments, and a replay would write once more. Have the function return what it writes, from "
          "a copy (clone()), and write that to the tensor after the call; or leave out replayable.");
    }
  }

 private:
  std::vector<std::pair<c10::VariableVersion, uint32_t>> before_;
};

// The function of one call, and what a replay gives it again of forward's surroundings. An op of these takes it beside
// tensors and generators.
class Call final : public torch::CustomClassHolder {
 public:
  Call(ReplayedFunction fn, const Tensors& tensors)
      : fn_(std::move(fn)), autocast_types_(autocast_types_of(tensors)), requires_grad_(tensors.size()) {
    // As in the forward of a function of autograd's, which may look at it. With grad mode on the function gets tensors
    // that require none, and may ask for their arrays.
    for (size_t i = 0; i < tensors.size() && !at::GradMode::is_enabled(); ++i) {
      requires_grad_[i] = tensors[i].requires_grad();
    }
  }

  Tensors run(const std::string& name, ReplayedParts parts) {
    Tensors results;
    {
      const DeclaredKernel declared;
      const SameResizability resizability(parts.tensors);
      const at::AutoDispatchBelowAutograd below_autograd;  // in replays too
      const WithAutocastTypes autocast_types(autocast_types_);
      const WritesToArguments writes(parts.tensors);
      for (size_t i = 0; i < parts.tensors.size(); ++i) {
        at::Tensor& tensor = parts.tensors[i];
        if (requires_grad_.at(i) || tensor.requires_grad()) {
          tensor = tensor.detach().requires_grad_(requires_grad_.at(i));
        }
      }
      results = fn_(parts);
      writes.check(name);
    }
    const auto count = static_cast<int64_t>(results.size());
    const int64_t before = results_.exchange(count);
    TORCH_CHECK(before < 0 || before == count, name, " returned ", count, " tensors in a replay and ", before,
                " in forward. A replayable function returns as many tensors each time.");
    return results;
  }

 private:
  const ReplayedFunction fn_;
  const AutocastTypes autocast_types_;
  std::vector<bool> requires_grad_;
  std::atomic<int64_t> results_{-1};
};

// Generators are arguments of their own, because replays have others in their places (operators/random_replay.h).
constexpr size_t kMostGenerators = 2;

// The kernel of all of them.
void run(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::intrusive_ptr<Call> call = torch::jit::pop(*stack).toCustomClass<Call>();
  ReplayedParts parts;
  for (const c10::IValue& generator : torch::jit::last(*stack, kMostGenerators)) {
    if (generator.isGenerator()) {
      parts.generators.push_back(generator.toGenerator());
    }
  }
  torch::jit::drop(*stack, kMostGenerators);
  parts.tensors = torch::jit::pop(*stack).toTensorVector();
  torch::jit::push(*stack, c10::List<at::Tensor>(call->run(op.operator_name().name, std::move(parts))));
}

// The operators, by their names. Leaked: graphs outlive static objects.
class Operators {
 public:
  static Operators& get() {
    static auto* operators = new Operators;
    return *operators;
  }

  c10::OperatorHandle get(const std::string& name) {
    const MutexLock lock(mutex_);
    const auto found = by_name_.find(name);
    return found != by_name_.end() ? found->second : by_name_.emplace(name, registered(name)).first->second;
  }

 private:
  // A class of its own. PyTorch hands a capsule to Python's policies and modes as a process group, which it is not.
  Operators() : call_("ac2", "ReplayableCall") { ForkLocks::add_first(mutex_); }

  c10::OperatorHandle registered(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    library_.def(absl::StrCat(name,
                              "(Tensor[] tensors, Generator? first, Generator? second, "
                              "__torch__.torch.classes.ac2.ReplayableCall call) -> Tensor[]")
                     .c_str());
    library_.impl(name.c_str(), torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd,
                                                torch::CppFunction::makeFromBoxedFunction<&run>()));
    return c10::Dispatcher::singleton().findSchemaOrThrow(absl::StrCat(kNamespace, "::", name).c_str(), "");
  }

  Mutex mutex_;
  const torch::class_<Call> call_;
  torch::Library library_ ABSL_GUARDED_BY(mutex_){torch::Library::FRAGMENT, kNamespace, std::nullopt, __FILE__,
                                                  __LINE__};
  absl::flat_hash_map<std::string, c10::OperatorHandle> by_name_ ABSL_GUARDED_BY(mutex_);
};

bool is_name(const std::string& name) {
  return !name.empty() && !absl::ascii_isdigit(name[0]) &&
         std::ranges::all_of(name, [](char c) { return absl::ascii_isalnum(c) || c == '_'; });
}

Tensors call_op(const std::string& name, ReplayedFunction fn, const ReplayedParts& parts) {
  TORCH_CHECK(parts.generators.size() <= kMostGenerators, "replayable::", name, " was given ", parts.generators.size(),
              " generators; expected ", kMostGenerators, " at most. Draw the numbers outside of the function.");
  torch::jit::Stack stack;
  torch::jit::push(stack, c10::List<at::Tensor>(parts.tensors));
  for (size_t i = 0; i < kMostGenerators; ++i) {
    torch::jit::push(stack, i < parts.generators.size() ? c10::IValue(parts.generators[i]) : c10::IValue());
  }
  torch::jit::push(stack, c10::make_intrusive<Call>(std::move(fn), parts.tensors));
  const at::AutoDispatchBelowAutograd below_autograd;
  Operators::get().get(name).callBoxed(stack);
  return torch::jit::pop(stack).toTensorVector();
}

// Where a backward ends with an error that says what to do. LibTorch's own node for that throws errors of another class
// before 2.15.
class NoDerivative final : public torch::autograd::Node {
 public:
  NoDerivative(std::string name, torch::autograd::edge_list next)
      : torch::autograd::Node(std::move(next)), name_(std::move(name)) {}

  Tensors apply(Tensors&& /*gradients*/) override {
    TORCH_CHECK(false, "replayable::", name_,
                " has no derivative: a replayable function runs below autograd. Call it in the forward of a ",
                spelled("torch::autograd::Function", "torch.autograd.Function"),
                ", whose backward says what the derivative is, or detach its arguments.");
  }

 private:
  std::string name_;
};

void end_backward_at(const Tensors& results, const std::string& name, const Tensors& tensors) {
  const auto error = owned_node(new NoDerivative(name, torch::autograd::collect_next_edges(tensors)));
  for (const at::Tensor& result : results) {
    if (torch::autograd::isDifferentiableType(result.scalar_type())) {
      torch::autograd::set_history(result, error);
    }
  }
}

bool wants_gradient(const Tensors& tensors) {
  return at::GradMode::is_enabled() &&
         std::ranges::any_of(tensors, [](const at::Tensor& tensor) { return tensor.requires_grad(); });
}

}  // namespace

void add_replayable(const std::string& name) {
  TORCH_CHECK(is_name(name), "A replayable function was named \"", name,
              "\"; expected letters, digits and underscores, and no digit at the beginning.");
  Operators::get().get(name);
}

Tensors call_replayable(const std::string& name, ReplayedFunction fn, const ReplayedParts& parts) {
  Tensors results = call_op(name, std::move(fn), parts);
  if (wants_gradient(parts.tensors)) {
    end_backward_at(results, name, parts.tensors);
  }
  return results;
}

}  // namespace ac2::internal
