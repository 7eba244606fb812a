#include "ac2/internal/random.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <optional>
#include <utility>

namespace ac2::internal {

namespace {

std::optional<c10::Device> device_of(const OpFacts& facts, c10::ArrayRef<c10::IValue> arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& argument = arguments[i];
    if (argument.isTensor() && argument.toTensor().defined()) {
      return argument.toTensor().device();
    }
    if (argument.isDevice() && facts.op.schema().arguments()[i].name() == "device") {
      return argument.toDevice();
    }
  }
  return std::nullopt;
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

thread_local at::Generator redirected_generator;

// One replay at a time swaps default generators.
std::mutex& swap_mutex() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace

RecordedDraw::RecordedDraw(const OpFacts& facts, c10::IValue* arguments)
    : generator_(generator_of(facts, c10::ArrayRef<c10::IValue>(arguments, facts.num_arguments))) {
  // An op without a Generator argument takes the generator's lock itself, somewhere inside, so we cannot hold that: the
  // copy and the op are kept together, against other regions, by a lock of our own.
  static std::mutex default_generator_mutex;
  if (facts.is_aten && generator_ == at::detail::getDefaultCPUGenerator()) {
    turn_ = std::unique_lock(default_generator_mutex);
  }
  lock_ = std::unique_lock(generator_.mutex());
  before_ = generator_.clone();
  // A kernel of someone else's may use the default generator besides its argument, and would wait for the lock for
  // ever.
  if (facts.is_aten && facts.generator_argument >= 0 && generator_.device().is_cpu()) {
    own_ = generator_.clone();
    arguments[facts.generator_argument] = own_;
  } else {
    lock_.unlock();
  }
}

RecordedDraw::~RecordedDraw() {
  if (own_.defined()) {
    copy_cpu_state(own_, generator_);
  }
}

const at::Generator& ReplayedDraw::redirected() {
  return redirected_generator;
}

ReplayedDraw::ReplayedDraw(const OpFacts& facts, const at::Generator& before) : generator_(before.clone()) {
  if (facts.generator_argument >= 0) {
    return;
  }
  redirects_ = facts.is_aten && generator_.device().is_cpu();
  if (redirects_) {
    previous_ = std::exchange(redirected_generator, generator_);
    return;
  }
  swap_lock_ = std::unique_lock(swap_mutex());
  swapped_ = at::globalContext().defaultGenerator(generator_.device());
  const std::lock_guard lock(swapped_.mutex());
  swapped_state_ = swapped_.clone();
  copy_state(generator_, swapped_);
}

ReplayedDraw::~ReplayedDraw() {
  if (redirects_) {
    redirected_generator = std::move(previous_);
  } else if (swapped_.defined()) {
    const std::lock_guard lock(swapped_.mutex());
    copy_state(swapped_state_, swapped_);
  }
}

}  // namespace ac2::internal
