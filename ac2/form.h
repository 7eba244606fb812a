// Forms: ways in which a value is held for backward other than as it is. Fewer bits, the host's memory, a file.
//
//   // A budget or a plan may use forms besides computing again, whichever costs least:
//   ac2::PolicyScope scope({.memory_budget = 8LL << 30,
//                           .forms = {ac2::forms::host_memory(), ac2::forms::one_bit(),
//                           ac2::forms::file("/scratch")}});
//   // A policy may decide that the results of an op are saved in one:
//   ac2::Policy policy = [form = ac2::forms::narrow(at::kBFloat16)](const ac2::OpContext& op) -> ac2::PolicyDecision {
//     if (op.is("aten::gelu")) return form;
//     return ac2::CheckpointPolicy::PREFER_RECOMPUTE;
//   };
//
// A new form is a subclass of Form in one file:
//
//   struct Halves final : ac2::Form {
//     std::string name() const override { return "halves"; }
//     bool is_exact() const override { return false; }
//     bool takes(const ac2::FormInput& tensor) const override { return tensor.dtype == at::kFloat; }
//     c10::IValue pack(const at::Tensor& tensor) const override { return tensor.to(at::kHalf); }
//     at::Tensor unpack(const c10::IValue& packed) const override { return packed.toTensor().to(at::kFloat); }
//   };
//   const auto halves = std::make_shared<const Halves>();
//
// Threads: forms are immutable and shared. Any number of threads may call each function of one at once.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ac2/offload_options.h"

namespace ac2 {

namespace internal {
class FormAccess;
class HarmlessForm;
}  // namespace internal

// A tensor, as far as it is known before its numbers are read. The bytes are those of its whole storage.
struct FormInput {
  int64_t bytes = 0;
  at::ScalarType dtype = at::kFloat;
  c10::Device device = c10::kCPU;
};

// The cost of a form. The unit is that of modelled costs, nanoseconds of an imagined machine whose copy of a tensor
// takes a nanosecond for 5 bytes: only ratios to the costs of ops mean anything.
struct FormEstimate {
  int64_t bytes = 0;  // of the packed value that count where the value counted
  double pack_cost = 0;
  double unpack_cost = 0;  // for each use
};

class Form {
 public:
  virtual ~Form() = default;
  Form(const Form&) = delete;
  Form& operator=(const Form&) = delete;

  // Says all that is needed to make the form again, as "quantized 8 bits, seed 0": reports and plans' files use it.
  virtual std::string name() const = 0;
  // Whether unpacking gives back the bits of the packed tensor. A budget or a plan that uses exact forms alone computes
  // plain autograd's bits.
  virtual bool is_exact() const = 0;
  // Whether there is any use in calling pack() for such a tensor.
  virtual bool takes(const FormInput& tensor) const;
  // The bytes and the cost of the form for such a tensor. Null, the default: they are found by packing.
  virtual std::optional<FormEstimate> estimate(const FormInput& tensor) const;
  // Packs a tensor into any IValue: a tensor, a tuple of codes and scales, a capsule. None: the form does not take this
  // tensor, which then stays as it is. `tensor` is a whole storage, dense, without a gradient; it must not be written
  // to, which is an error, nor kept, for the program may write to it later. A tensor may be returned that lies in its
  // memory (the tensor itself, a view), alone, in a tuple or in a list of tensors: the library copies it. An object
  // that hides such a tensor is not kept: pack() is called again with a copy. The ops inside run as if no region were
  // open. An exception reaches the program from the op that needed the value or the room.
  virtual c10::IValue pack(const at::Tensor& tensor) const = 0;
  // Returns a tensor of the sizes, dtype and device of the one that was packed; its strides may differ. Runs in
  // backward, each time the value is needed, on any thread.
  virtual at::Tensor unpack(const c10::IValue& packed) const = 0;

 protected:
  // Forms of the program's own may let go of any tensor that it has, while they pack or unpack.
  Form();

 private:
  friend class internal::FormAccess;
  friend class internal::HarmlessForm;

  enum class Harmless : uint8_t { kYes };
  explicit Form(Harmless /*harmless*/) {}
  // The options of the one form that the library copies by itself, beside the ops; null for all others.
  virtual const OffloadOptions* copied_with() const { return nullptr; }
};

using FormPtr = std::shared_ptr<const Form>;
// Each form once, by its name.
using Forms = std::vector<FormPtr>;

// A form as two functions of the program's, for one decision of a policy. `pack` runs in forward, once, when something
// first needs the result for backward. `pack` does not run if nothing does. `unpack` runs in backward, each time the
// value is needed. A packed value may be any IValue: a tensor, a tuple of codes and scales, a file name. What
// Form::pack() says of the tensor's own memory holds here too.
//
// `unpack` must return a tensor of the sizes, dtype and device of the one that was packed; its strides may differ.
// Neither function may write into the tensor that it is given. Both may drop any tensor of the program's. The ops
// inside both run as if no region were open. An exception of `pack` reaches the program from the op that needed the
// value, and one of `unpack` from backward.
struct SaveWithHooks {
  std::function<c10::IValue(const at::Tensor&)> pack;
  std::function<at::Tensor(const c10::IValue&)> unpack;
};

// The ready-made forms. quantized(), narrow(), one_bit() and file() are defined in //policies, which a program that
// uses them links (with CMake always).
namespace forms {

// In pinned memory of the host, copied beside the ops (ac2/offload.h). Exact. Takes tensors of at least
// `options.min_bytes` on an accelerator. In a list of forms the options hold for what leaves the device there. As the
// decision of a policy the form means MUST_CPU_OFFLOAD, whose options are the scope's (ScopeOptions::offload), so that
// options given here are an error.
FormPtr host_memory(OffloadOptions options = {});

// In 8 or 4 bits a number, and the range of each 256 numbers (policies/quantize_ops.h has the format); rounded at
// random, by numbers that follow from the seed and from how many tensors were packed before. Inexact. Takes
// floating-point tensors, and bools exactly, on devices with kernels for it. Throws c10::Error for other bits.
FormPtr quantized(int bits, uint64_t seed = 0);

// In a narrower floating-point format: kBFloat16, kHalf, kFloat8_e4m3fn or kFloat8_e5m2 (policies/narrow_ops.h).
// Inexact. Throws c10::Error for another format.
FormPtr narrow(at::ScalarType format);

// In one bit a number, what has at most two values: bools on any device, and on the CPU floating-point tensors such as
// a dropout's mask {0, 1/(1-p)}. Exact. Whether a tensor has two values is found by looking at it.
FormPtr one_bit();

// In files without a name in the directory (policies/spill_to_file.h has the format). Exact. Takes tensors of at least
// 64 KiB on any device, and has written one when pack() returns. Throws c10::Error for a directory in which no file can
// be made. A tensor that cannot be written later is not taken, and a warning says so once for a form.
FormPtr file(const std::string& directory);

// By functions of the program's own. `exact`: as is_exact(). The name has a number that no other form has, and a plan's
// file cannot name the form. Throws c10::Error if a function is empty.
FormPtr functions(std::function<c10::IValue(const at::Tensor&)> pack,
                  std::function<at::Tensor(const c10::IValue&)> unpack, bool exact);

}  // namespace forms

}  // namespace ac2
