#include "ac2/internal/libtorch/random_state.h"

#include <ATen/Context.h>
#include <c10/util/Exception.h>

#include <typeinfo>
#include <utility>

namespace ac2::internal {

namespace {

// Whether seed and offset are the whole state of the device's generators.
bool is_counter(c10::DeviceType type) {
  return type == c10::DeviceType::CUDA || type == c10::DeviceType::XPU;
}

}  // namespace

RandomState::Engine::Engine(at::CPUGeneratorImpl& generator)
    : engine(generator.engine()),
      next_float(generator.next_float_normal_sample()),
      next_double(generator.next_double_normal_sample()) {}

RandomState::RandomState(const at::Generator& generator) {
  const c10::Device device = generator.device();
  c10::GeneratorImpl& impl = *generator.unsafeGetGeneratorImpl();
  if (typeid(impl) == typeid(at::CPUGeneratorImpl)) {  // a class derived from it may have more state
    state_ = c10::make_intrusive<Engine>(static_cast<at::CPUGeneratorImpl&>(impl));
    return;
  }
  if (!is_counter(device.type())) {
    state_ = generator.clone();
    return;
  }
  try {
    state_ = c10::make_intrusive<Counter>(device, generator.current_seed(), generator.get_offset());
  } catch (const c10::Error&) {
    // A graph is being captured.
  }
}

at::Generator RandomState::generator() const {
  if (const auto* copy = std::get_if<at::Generator>(&state_)) {
    return copy->clone();
  }
  if (const auto* state = std::get_if<c10::intrusive_ptr<Engine>>(&state_)) {
    const Engine& cpu = **state;
    auto generator = c10::make_intrusive<at::CPUGeneratorImpl>();
    generator->set_engine(cpu.engine);
    generator->set_next_float_normal_sample(cpu.next_float);
    generator->set_next_double_normal_sample(cpu.next_double);
    return at::Generator(std::move(generator));
  }
  const Counter& counter = *std::get<c10::intrusive_ptr<Counter>>(state_);
  at::Generator generator = at::globalContext().defaultGenerator(counter.device).clone();
  generator.set_current_seed(counter.seed);
  generator.set_offset(counter.offset);
  return generator;
}

}  // namespace ac2::internal
