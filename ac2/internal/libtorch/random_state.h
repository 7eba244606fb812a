// The state of a generator at one moment, in the cheapest form that its device offers.
//
//   const RandomState before(generator);         // with the generator's lock
//   at::Generator own = before.generator();      // one of its own, that draws the same
//
// On the CPU it is a copy of the generator (5 KB). Devices whose generators are counters (Philox) have 16 bytes: seed
// and offset. Of other devices it is a copy too.
//
// Undefined where the state cannot be known: while a CUDA graph is captured, LibTorch lets nobody look at it.
// Threads: a value, as at::Generator.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <variant>

namespace ac2::internal {

class RandomState {
 public:
  RandomState() = default;
  explicit RandomState(const at::Generator& generator);

  bool defined() const { return !std::holds_alternative<std::monostate>(state_); }
  // A new one each time. Must be defined.
  at::Generator generator() const;

 private:
  struct Counter : c10::intrusive_ptr_target {
    Counter(c10::Device of, uint64_t s, uint64_t o) : device(of), seed(s), offset(o) {}
    const c10::Device device;
    const uint64_t seed;
    const uint64_t offset;
  };

  std::variant<std::monostate, at::Generator, c10::intrusive_ptr<Counter>> state_;
};

}  // namespace ac2::internal
