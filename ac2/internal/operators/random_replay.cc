#include "ac2/internal/operators/random_replay.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <optional>
#include <utility>

#include "ac2/internal/libtorch/python_lock.h"
#include "ac2/internal/locks/fork_locks.h"

namespace ac2::internal {

namespace {

// The device on which the op draws. rand_like(x, device) draws on `device` and not on that of x.
std::optional<c10::Device> device_of(const OpFacts& facts, c10::ArrayRef<c10::IValue> arguments) {
  std::optional<c10::Device> of_tensor;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& argument = arguments[i];
    if (argument.isDevice() && facts.op.schema().arguments()[i].name() == "device") {
      return argument.toDevice();
    }
    if (!of_tensor && argument.isTensor() && argument.toTensor().defined()) {
      of_tensor = argument.toTensor().device();
    }
  }
  return of_tensor;
}

at::Generator generator_of(const OpFacts& facts, c10::ArrayRef<c10::IValue> arguments) {
  if (facts.generator_argument >= 0) {
    const c10::IValue& argument = arguments[facts.generator_argument];
    if (argument.isGenerator()) {
      return argument.toGenerator();
    }
  }
  const c10::Device device = device_of(facts, arguments).value_or(c10::Device(c10::kCPU));
  // On the meta device nothing is drawn, and there is no generator.
  return default_generator(device.is_meta() ? c10::Device(c10::kCPU) : device);
}

bool is_same_generator(const c10::IValue& a, const c10::IValue& b) {
  return a.isGenerator() && b.isGenerator() && a.toGenerator() == b.toGenerator();
}

void copy_cpu_state(const at::Generator& from, const at::Generator& to) {
  auto* source = from.get<at::CPUGeneratorImpl>();
  auto* target = to.get<at::CPUGeneratorImpl>();
  target->set_engine(source->engine());
  target->set_next_float_normal_sample(source->next_float_normal_sample());
  target->set_next_double_normal_sample(source->next_double_normal_sample());
}

void copy_state(const at::Generator& from, const at::Generator& to) {
  if (to.device().is_cpu()) {
    copy_cpu_state(from, to);
  } else {
    at::Generator(to).set_state(from.get_state());
  }
}

constinit thread_local const at::Generator* redirected_generator = nullptr;

// A replay holds this mutex while it swaps the states of default generators. Ops of LibTorch's that draw from a default
// generator hold it while they are recorded. Recursive, because an op that is replayed may have regions of its own.
// The analysis does not know std::unique_lock, and no data of ac2's is guarded by the turn.
std::unique_lock<RecursiveMutex> take_turn() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  static auto& mutex = ForkLocks::make_first<RecursiveMutex>();
  lock_without_python(mutex);  // whose turn it is may run an op that is written in Python
  return {mutex, std::adopt_lock};
}

// Whether generators of this type cannot share and exchange their states (graphsafe_get_state), which is found out
// once. Relaxed: a thread that reads false too late finds it out once more.
std::atomic<bool>& lacks_references(c10::DeviceType type) {
  static std::array<std::atomic<bool>, c10::COMPILE_TIME_MAX_DEVICE_TYPES> lacks{};
  return lacks.at(static_cast<size_t>(type));
}

}  // namespace

DrawInForward::DrawInForward(const OpFacts& facts, c10::IValue* arguments)
    : generator_(generator_of(facts, c10::ArrayRef<c10::IValue>(arguments, facts.num_arguments))) {
  // An op without a Generator argument takes the generator's lock itself, so that it cannot be held here. A lock of our
  // own keeps other regions from drawing between the copy and the op.
  if (!generator_.device().is_cpu() || generator_ == at::detail::getDefaultCPUGenerator()) {
    turn_ = take_turn();
  }
  lock_ = std::unique_lock(generator_.mutex());
  before_ = RandomState(generator_);
  if (facts.generator_argument >= 0 && generator_.device().is_cpu()) {
    own_ = generator_.clone();
    arguments[facts.generator_argument] = own_;
  } else {
    lock_.unlock();
  }
  argument_ = facts.generator_argument;
}

Draws DrawInForward::draws() const {
  Draws draws;
  if (before_.defined()) {
    draws.push_back({before_, argument_});
  }
  return draws;
}

DrawInForward::~DrawInForward() {
  if (own_.defined()) {
    copy_cpu_state(own_, generator_);
  }
}

const at::Generator* ReplayedDraws::redirected() {
  return redirected_generator;
}

ReplayedDraws::ReplayedDraws(const OpFacts& facts, const Draws& draws, c10::IValue* arguments) {
  for (const DrawnFrom& from : draws) {
    const at::Generator generator = from.before.generator();
    if (from.argument >= 0) {
      const c10::IValue drawn_from = arguments[from.argument];
      for (size_t i = 0; i < facts.num_arguments; ++i) {
        if (is_same_generator(arguments[i], drawn_from)) {
          arguments[i] = generator;
        }
      }
      arguments[from.argument] = generator;
    } else if (facts.is_aten && generator.device().is_cpu()) {
      redirected_to_ = generator;
      previous_ = std::exchange(redirected_generator, &redirected_to_);
      redirects_ = true;
    } else {
      if (!turn_.owns_lock()) {
        turn_ = take_turn();
      }
      swapped_.push_back(swap_in(generator));
    }
  }
}

// By reference where that is possible. The generator then gets the same state object back that it had, with the graphs
// that are registered for it. No seed is set, after which cuDNN would begin a new sequence for dropout.
ReplayedDraws::Swapped ReplayedDraws::swap_in(const at::Generator& state) {
  Swapped swapped;
  swapped.generator = default_generator(state.device());
  const std::lock_guard lock(swapped.generator.mutex());
  std::atomic<bool>& lacks = lacks_references(state.device().type());
  if (!lacks.load(std::memory_order_relaxed)) {
    try {
      swapped.own_state = swapped.generator.graphsafe_get_state();
      swapped.generator.graphsafe_set_state(state);
      swapped.by_reference = true;
      return swapped;
    } catch (const c10::NotImplementedError&) {
      lacks.store(true, std::memory_order_relaxed);
    }
  }
  swapped.own_state = swapped.generator.clone();
  copy_state(state, swapped.generator);
  return swapped;
}

void ReplayedDraws::swap_back(Swapped& swapped) {
  const std::lock_guard lock(swapped.generator.mutex());
  if (swapped.by_reference) {
    swapped.generator.graphsafe_set_state(swapped.own_state);
  } else {
    copy_state(swapped.own_state, swapped.generator);
  }
}

ReplayedDraws::~ReplayedDraws() {
  if (redirects_) {
    redirected_generator = previous_;
  }
  for (Swapped& swapped : swapped_) {
    swap_back(swapped);
  }
}

}  // namespace ac2::internal
