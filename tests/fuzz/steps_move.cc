#include <ATen/core/grad_mode.h>

#include <iterator>
#include <memory>
#include <string>

#include "tests/fuzz/functions.h"
#include "tests/fuzz/steps.h"

namespace ac2::test {

namespace {

struct LastUse {
  const char* before;
  const char* behind;
  at::Tensor (*fn)(const at::Tensor& last);
};

// The tensor itself is the argument, not a view of it.
constexpr LastUse kLastUses[] = {
    {"", ".sin()", [](const at::Tensor& t) { return t.sin(); }},
    {"", ".cos()", [](const at::Tensor& t) { return t.cos(); }},
    {"", ".tanh()", [](const at::Tensor& t) { return t.tanh(); }},
    {"", " * 0.5", [](const at::Tensor& t) { return t * 0.5; }},
    {"", ".clone()", [](const at::Tensor& t) { return t.clone(); }},
    {"", ".softmax(-1)", [](const at::Tensor& t) { return t.softmax(-1); }},
    {"at::gelu(", ")", [](const at::Tensor& t) { return at::gelu(t); }},
    {"at::cat({", ".relu()})", [](const at::Tensor& t) { return at::cat({t.relu()}); }},
    {"", ".cumsum(0).tanh()", [](const at::Tensor& t) { return t.cumsum(0).tanh(); }},
    {"", ".sum(-1)", [](const at::Tensor& t) { return t.sum(-1); }},
};

}  // namespace

void last_use_step(Machine& machine, Dice& dice) {
  const LastUse& use = kLastUses[dice.roll(std::size(kLastUses))];
  const int kind = dice.roll(3);
  Variable v = machine.pick(dice);
  const Variable other = machine.pick(dice);
  if (!machine.may_use_last()) return;
  v.freeze();
  if (kind > 0) return machine.let_last(std::move(v), use.before, use.behind, use.fn);
  other.freeze();
  const at::Tensor with = other.tensor;
  if (with.is_same(v.tensor)) return;
  const std::string with_other = ", " + other.name + ")";
  machine.let_last(std::move(v), "at::mul(", with_other,
                   [with](const at::Tensor& last) { return at::mul(last, with); });
}

// The version that autograd looks at is the tensor's, which stays; the storage is another one.
void set_step(Machine& machine, Dice& dice) {
  const Variable v = machine.pick(dice), other = machine.pick(dice);
  const bool is_new = dice.roll(2) == 0;
  const at::Tensor& t = v.tensor;
  if (!machine.may_move(v) || !machine.is_of_this_region(v) || v.frozen->saved || t.requires_grad()) return;
  if (is_new) {
    return machine.move(
        v, "no_gradient([&] { " + v.name + ".set_(at::full_like(" + v.name + ", 0.25)); })",
        [&] {
          const at::NoGradGuard no_grad;
          t.set_(at::full_like(t, 0.25));
        },
        std::make_shared<Frozen>());
  }
  if (other.tensor.scalar_type() != t.scalar_type() || other.tensor.is_same(t) || other.tensor.is_neg()) return;
  machine.move(
      v, "no_gradient([&] { " + v.name + ".set_(" + other.name + ".detach()); })",
      [&] {
        const at::NoGradGuard no_grad;
        t.set_(other.tensor.detach());
      },
      other.frozen);
}

// Autograd holds a leaf itself, and reads in backward what it has then.
void set_data_step(Machine& machine, Dice& dice) {
  const Variable v = machine.pick(dice);
  const at::Tensor& t = v.tensor;
  if (!machine.may_move(v) || !t.is_leaf() || !at::isFloatingType(t.scalar_type()) || t.is_neg() || t.is_conj()) return;
  // The tensors that plain autograd has saved stay saved.
  machine.move(
      v, v.name + ".set_data(" + v.name + ".detach() * 0.5)", [&] { t.set_data(t.detach() * 0.5); },
      std::make_shared<Frozen>(*v.frozen));
}

}  // namespace ac2::test
