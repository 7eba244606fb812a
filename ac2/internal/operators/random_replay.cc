#include "ac2/internal/operators/random_replay.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <optional>
#include <utility>

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
  return device.is_cpu() || device.is_meta() ? at::detail::getDefaultCPUGenerator()
                                             : at::globalContext().defaultGenerator(device);
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

// A replay holds this mutex while it swaps the state of a default generator. On devices other than the CPU, ops that
// draw hold it while they are recorded.
std::mutex& swap_mutex() {
  static std::mutex mutex;
  return mutex;
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
  static std::mutex default_generator_mutex;
  if (facts.is_aten && !generator_.device().is_cpu()) {
    turn_ = std::unique_lock(swap_mutex());
  } else if (facts.is_aten && generator_ == at::detail::getDefaultCPUGenerator()) {
    turn_ = std::unique_lock(default_generator_mutex);
  }
  lock_ = std::unique_lock(generator_.mutex());
  before_ = RandomState(generator_);
  // Custom ops are left out: their kernel may draw from the default generator besides its argument, and would wait for
  // the lock for ever.
  if (facts.is_aten && facts.generator_argument >= 0 && generator_.device().is_cpu()) {
    own_ = generator_.clone();
    arguments[facts.generator_argument] = own_;
  } else {
    lock_.unlock();
  }
}

DrawInForward::~DrawInForward() {
  if (own_.defined()) {
    copy_cpu_state(own_, generator_);
  }
}

const at::Generator* ReplayedDraw::redirected() {
  return redirected_generator;
}

ReplayedDraw::ReplayedDraw(const OpFacts& facts, const RandomState& before) : generator_(before.generator()) {
  if (facts.generator_argument >= 0) {
    return;
  }
  redirects_ = facts.is_aten && generator_.device().is_cpu();
  if (redirects_) {
    previous_ = std::exchange(redirected_generator, &generator_);
    return;
  }
  swap_lock_ = std::unique_lock(swap_mutex());
  swapped_ = at::globalContext().defaultGenerator(generator_.device());
  swap_in();
}

// By reference where that is possible. The generator then gets the same state object back that it had, with the graphs
// that are registered for it. No seed is set, after which cuDNN would begin a new sequence for dropout.
void ReplayedDraw::swap_in() {
  const std::lock_guard lock(swapped_.mutex());
  std::atomic<bool>& lacks = lacks_references(swapped_.device().type());
  if (!lacks.load(std::memory_order_relaxed)) {
    try {
      swapped_state_ = swapped_.graphsafe_get_state();
      swapped_.graphsafe_set_state(generator_);
      swapped_by_reference_ = true;
      return;
    } catch (const c10::NotImplementedError&) {
      lacks.store(true, std::memory_order_relaxed);
    }
  }
  swapped_state_ = swapped_.clone();
  copy_state(generator_, swapped_);
}

void ReplayedDraw::swap_back() {
  const std::lock_guard lock(swapped_.mutex());
  if (swapped_by_reference_) {
    swapped_.graphsafe_set_state(swapped_state_);
  } else {
    copy_state(swapped_state_, swapped_);
  }
}

ReplayedDraw::~ReplayedDraw() {
  if (redirects_) {
    redirected_generator = previous_;
  } else if (swapped_.defined()) {
    swap_back();
  }
}

}  // namespace ac2::internal
