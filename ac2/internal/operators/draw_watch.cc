#include "ac2/internal/operators/draw_watch.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>

#include "ac2/internal/libtorch/for_each_tensor.h"

namespace ac2::internal {

namespace {

// Whether devices of this type have no generator, or one that cannot be copied, which is found out once. Relaxed: a
// thread that reads false too late finds it out once more.
std::atomic<bool>& lacks_generator(c10::DeviceType type) {
  static std::array<std::atomic<bool>, c10::COMPILE_TIME_MAX_DEVICE_TYPES> lacks{};
  return lacks.at(static_cast<size_t>(type));
}

}  // namespace

RandomState RecentStates::of(const at::Generator& generator) {
  Entry* known =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.generator == generator; });
  if (known == entries_.end()) {
    return entries_.emplace_back(Entry{generator, RandomState(generator)}).state;
  }
  if (!known->state.is_of(generator)) {
    known->state = RandomState(generator);
  }
  return known->state;
}

DrawWatch::DrawWatch(const OpFacts& facts, c10::ArrayRef<c10::IValue> arguments, RecentStates& recent) : facts_(facts) {
  watch_default(c10::kCPU, recent);
  for_each_tensor(arguments, [&](const at::Tensor& tensor) {
    if (tensor.defined()) {
      watch_default(tensor.device(), recent);
    }
  });
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& argument = arguments[i];
    if (argument.isDevice()) {
      watch_default(argument.toDevice(), recent);
    } else if (argument.isGenerator() && !watches(argument.toGenerator())) {
      at::Generator generator = argument.toGenerator();
      const std::lock_guard lock(generator.mutex());
      watched_.push_back({generator, RandomState(generator), static_cast<int>(i)});
    }
  }
}

void DrawWatch::watch_default(c10::Device device, RecentStates& recent) {
  // On the meta device nothing is drawn, and there is no generator.
  if (device.is_meta() || lacks_generator(device.type()).load(std::memory_order_relaxed)) {
    return;
  }
  try {
    at::Generator generator = default_generator(device);
    if (watches(generator)) {
      return;
    }
    const std::lock_guard lock(generator.mutex());
    watched_.push_back({generator, recent.of(generator), -1});
  } catch (const c10::Error&) {
    lacks_generator(device.type()).store(true, std::memory_order_relaxed);
  }
}

bool DrawWatch::watches(const at::Generator& generator) const {
  return std::any_of(watched_.begin(), watched_.end(),
                     [&](const Watched& watched) { return watched.generator == generator; });
}

void DrawWatch::put_back() const {
  for (const Watched& watched : watched_) {
    at::Generator generator = watched.generator;
    const std::lock_guard lock(generator.mutex());
    if (watched.before.defined() && !watched.before.is_of(generator)) {
      watched.before.give_back(generator);
    }
  }
}

std::optional<Draws> DrawWatch::draws() const {
  Draws draws;
  bool all_known = true;
  for (const Watched& watched : watched_) {
    at::Generator generator = watched.generator;
    const std::lock_guard lock(generator.mutex());
    if (!watched.before.defined()) {
      all_known = false;
    } else if (!watched.before.is_of(generator)) {
      draws.push_back({watched.before, watched.argument});
    }
  }
  if (!draws.empty()) {
    facts_.seen_to_draw.store(true, std::memory_order_relaxed);
  }
  // While a CUDA graph is captured, an op draws if it says so, or did before: programs run a step before they capture
  // it.
  const bool may_have_drawn = facts_.draws || facts_.seen_to_draw.load(std::memory_order_relaxed);
  if (!all_known && may_have_drawn) {
    return Draws();
  }
  return draws.empty() ? std::nullopt : std::optional(draws);
}

}  // namespace ac2::internal
