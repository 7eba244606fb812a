// The state of a generator at one moment, in the smallest form that its device offers.
//
//   const RandomState before(generator);      // the caller holds the generator's lock
//   at::Generator own = before.generator();   // a new generator that draws the same numbers
//   if (!before.is_of(generator)) …           // something has drawn from it since
//
// For a device whose generators are counters (Philox) the state is the seed and the offset, 16 bytes. For the CPU the
// state is the engine that the generator draws from (2.5 KB): a copy of the generator is seeded before it becomes a
// copy, which takes more instructions than most ops. For all other devices the state is a copy of the generator.
//
// A RandomState is undefined where the state cannot be known: while a CUDA graph is captured, LibTorch does not allow
// reading it.
// Threads: a RandomState is a value, as at::Generator is.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/core/MT19937RNGEngine.h>
#include <c10/core/Device.h>
#include <c10/util/SmallVector.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <optional>
#include <variant>

namespace ac2::internal {

// The one that ops on `device` draw from which are given none. Throws c10::Error for a device without generators.
at::Generator default_generator(c10::Device device);

class RandomState {
 public:
  RandomState() = default;
  explicit RandomState(const at::Generator& generator);

  bool defined() const { return !std::holds_alternative<std::monostate>(state_); }
  // A new generator in that state, at each call. The state must be defined.
  at::Generator generator() const;
  // Whether `generator` is in that state now. False also where that cannot be known. The caller holds its lock.
  bool is_of(const at::Generator& generator) const;
  // Puts `generator`, from which the state was read, into that state again. The caller holds its lock.
  void give_back(const at::Generator& generator) const;

 private:
  struct Counter : c10::intrusive_ptr_target {
    Counter(c10::Device of, uint64_t s, uint64_t o) : device(of), seed(s), offset(o) {}
    const c10::Device device;
    const uint64_t seed;
    const uint64_t offset;
  };

  // Of a CPU's generator.
  struct Engine : c10::intrusive_ptr_target {
    explicit Engine(at::CPUGeneratorImpl& generator);
    bool is_of(at::CPUGeneratorImpl& generator) const;
    void give_to(at::CPUGeneratorImpl& generator) const;

    const at::mt19937_data_pod data;
    // Normal numbers are drawn in pairs.
    const std::optional<float> next_float;
    const std::optional<double> next_double;
  };

  std::variant<std::monostate, at::Generator, c10::intrusive_ptr<Counter>, c10::intrusive_ptr<Engine>> state_;
};

// A generator that an op has drawn from: its state before the op, and the index of the op's argument that it is, or -1
// if it is the default generator of its device.
struct DrawnFrom {
  RandomState before;
  int argument = -1;
};
using Draws = c10::SmallVector<DrawnFrom, 1>;

}  // namespace ac2::internal
