#include "tests/fuzz/odd_forms.h"

#include <ATen/ops/sin.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/custom_class.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "ac2/scope.h"
#include "policies/all_or_nothing.h"
#include "tests/fuzz/regions_switch.h"

namespace ac2::test {

namespace {

struct Hidden : torch::CustomClassHolder {
  explicit Hidden(at::Tensor copy) : copy(std::move(copy)) {}
  at::Tensor copy;
};

// A budget counts the bytes of tensors. A tensor that a form hides counts nothing, so that a budget takes the form for
// narrower than any value.
c10::IValue hide(const at::Tensor& tensor) {
  last_use().reset();
  return c10::IValue::make_capsule(c10::make_intrusive<Hidden>(tensor.clone()));
}

at::Tensor find(const c10::IValue& packed) {
  last_use().reset();
  return c10::static_intrusive_pointer_cast<Hidden>(packed.toCapsule())->copy.clone();
}

class OddForm : public Form {
 public:
  bool is_exact() const override { return true; }
  c10::IValue pack(const at::Tensor& tensor) const override { return hide(tensor); }
  at::Tensor unpack(const c10::IValue& packed) const override { return find(packed); }
};

class Hiding final : public OddForm {
 public:
  std::string name() const override { return "hiding"; }
};

// Takes no tensor, which it says when it is given one. It is not exact, so that results of choices by numbers are
// saved.
class Declining final : public OddForm {
 public:
  std::string name() const override { return "declining"; }
  bool is_exact() const override { return false; }
  c10::IValue pack(const at::Tensor&) const override { return {}; }
};

// Needs as many bytes as the value, which the budget finds out once the form has packed it.
class Wide final : public OddForm {
 public:
  std::string name() const override { return "wide"; }
  c10::IValue pack(const at::Tensor& tensor) const override { return tensor.clone(); }
  at::Tensor unpack(const c10::IValue& packed) const override { return packed.toTensor(); }
};

// Says of itself that it takes very long.
class Slow final : public OddForm {
 public:
  std::string name() const override { return "slow"; }
  std::optional<FormEstimate> estimate(const FormInput& tensor) const override {
    const auto cost = static_cast<double>(tensor.bytes) * 50;
    return FormEstimate{.bytes = 0, .pack_cost = cost, .unpack_cost = cost};
  }
};

// Opens a region of its own each time, and runs a backward through it where autograd is on.
class Opening final : public OddForm {
 public:
  std::string name() const override { return "opening"; }
  c10::IValue pack(const at::Tensor& tensor) const override {
    run_backward(tensor);
    return hide(tensor);
  }
  at::Tensor unpack(const c10::IValue& packed) const override {
    at::Tensor found = find(packed);
    run_backward(found);
    return found;
  }

 private:
  static void run_backward(const at::Tensor& tensor) {
    if (!at::isFloatingType(tensor.scalar_type())) return;
    const at::AutoGradMode grad(true);
    const at::Tensor leaf = tensor.detach().clone().requires_grad_();
    at::Tensor sum;
    {
      const PolicyScope scope(policies::recompute_all());
      sum = leaf.sin().sin().sum();
    }
    // A form runs below autograd where an op needed the room.
    if (!sum.requires_grad()) return;
    sum.backward();
    TORCH_CHECK(leaf.grad().defined(), "no gradient came out of a region that a form has opened");
  }
};

}  // namespace

Forms odd_forms(uint32_t choice) {
  static const std::array<FormPtr, 5> kAll = {std::make_shared<const Declining>(), std::make_shared<const Hiding>(),
                                              std::make_shared<const Wide>(), std::make_shared<const Slow>(),
                                              std::make_shared<const Opening>()};
  Forms forms = {forms::one_bit()};
  for (size_t i = 0; i < kAll.size(); ++i) {
    if (((choice * 2654435761U) >> (7 + i) & 1U) != 0) forms.push_back(kAll[i]);
  }
  if (forms.size() == 1) forms.push_back(kAll[choice % kAll.size()]);
  return forms;
}

}  // namespace ac2::test
