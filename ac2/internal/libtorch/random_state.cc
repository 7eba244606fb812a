#include "ac2/internal/libtorch/random_state.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cstring>
#include <typeinfo>
#include <utility>

namespace ac2::internal {

namespace {

// Whether seed and offset are the whole state of the device's generators.
bool is_counter(c10::DeviceType type) {
  return type == c10::DeviceType::CUDA || type == c10::DeviceType::XPU;
}

at::mt19937 engine_of(const at::mt19937_data_pod& data) {
  at::mt19937 engine;
  engine.set_data(data);
  return engine;
}

bool has_same_bytes(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

}  // namespace

at::Generator default_generator(c10::Device device) {
  return device.is_cpu() ? at::detail::getDefaultCPUGenerator() : at::globalContext().defaultGenerator(device);
}

RandomState::Engine::Engine(at::CPUGeneratorImpl& generator)
    : data(generator.engine().data()),
      next_float(generator.next_float_normal_sample()),
      next_double(generator.next_double_normal_sample()) {}

// The numbers that are left of a round come first: nearly every draw changes them. The rest is compared for draws of
// whole rounds.
bool RandomState::Engine::is_of(at::CPUGeneratorImpl& generator) const {
  const at::mt19937_data_pod now = generator.engine().data();
  return now.left_ == data.left_ && now.next_ == data.next_ && now.seed_ == data.seed_ && now.state_ == data.state_ &&
         generator.next_float_normal_sample() == next_float && generator.next_double_normal_sample() == next_double;
}

void RandomState::Engine::give_to(at::CPUGeneratorImpl& generator) const {
  generator.set_engine(engine_of(data));
  generator.set_next_float_normal_sample(next_float);
  generator.set_next_double_normal_sample(next_double);
}

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
    auto generator = c10::make_intrusive<at::CPUGeneratorImpl>();
    (*state)->give_to(*generator);
    return at::Generator(std::move(generator));
  }
  const Counter& counter = *std::get<c10::intrusive_ptr<Counter>>(state_);
  at::Generator generator = at::globalContext().defaultGenerator(counter.device).clone();
  generator.set_current_seed(counter.seed);
  generator.set_offset(counter.offset);
  return generator;
}

bool RandomState::is_of(const at::Generator& generator) const {
  if (const auto* copy = std::get_if<at::Generator>(&state_)) {
    return has_same_bytes(copy->get_state(), generator.get_state());
  }
  if (const auto* state = std::get_if<c10::intrusive_ptr<Engine>>(&state_)) {
    return (*state)->is_of(*generator.get<at::CPUGeneratorImpl>());
  }
  const auto* counter = std::get_if<c10::intrusive_ptr<Counter>>(&state_);
  try {
    return counter != nullptr && generator.get_offset() == (*counter)->offset &&
           generator.current_seed() == (*counter)->seed;
  } catch (const c10::Error&) {
    return false;  // a graph is being captured
  }
}

void RandomState::give_back(const at::Generator& generator) const {
  at::Generator target = generator;
  if (const auto* copy = std::get_if<at::Generator>(&state_)) {
    target.set_state(copy->get_state());
  } else if (const auto* state = std::get_if<c10::intrusive_ptr<Engine>>(&state_)) {
    (*state)->give_to(*target.get<at::CPUGeneratorImpl>());
  } else if (const auto* counter = std::get_if<c10::intrusive_ptr<Counter>>(&state_)) {
    // A new seed would have cuDNN begin a new sequence for dropout.
    if (target.current_seed() != (*counter)->seed) {
      target.set_current_seed((*counter)->seed);
    }
    target.set_offset((*counter)->offset);
  }
}

}  // namespace ac2::internal
