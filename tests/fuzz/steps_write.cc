#include <string>

#include "tests/fuzz/functions.h"
#include "tests/fuzz/steps.h"

namespace ac2::test {

void write_step(Machine& machine, Dice& dice) {
  const Variable v = machine.pick(dice), other = machine.pick(dice);
  const int kind = dice.roll(10);
  const int filler = dice.roll(3);
  if (!machine.may_write(v)) return;
  const at::Tensor& t = v.tensor;
  switch (kind) {
    case 0:
      return machine.run(v.name + ".mul_(0.75)", [&] { t.mul_(0.75); });
    case 1:
      return machine.run(v.name + ".add_(" + other.name + ", 0.5)", [&] { t.add_(other.tensor, 0.5); });
    case 2:
      v.freeze();
      return machine.run(v.name + ".tanh_()", [&] { t.tanh_(); });
    case 3:
      v.freeze();
      return machine.run(v.name + ".sigmoid_()", [&] { t.sigmoid_(); });
    case 4:
      return machine.run(v.name + ".copy_(" + other.name + ")", [&] { t.copy_(other.tensor); });
    case 5:
      if (filler == 0) return machine.run(v.name + ".fill_(0.125)", [&] { t.fill_(0.125); });
      if (filler == 1 || !machine.may_draw()) return machine.run(v.name + ".zero_()", [&] { t.zero_(); });
      return machine.run(v.name + ".normal_()", [&] { t.normal_(); });
    case 6:
      return machine.run("at::_foreach_mul_({" + v.name + "}, 1.25)", [&] { at::_foreach_mul_({t}, 1.25); });
    case 7:
      other.freeze();
      if (!machine.may_write(v)) return;  // an alias of it
      return machine.run(v.name + ".addcmul_(" + other.name + ", " + other.name + ", 0.125)",
                         [&] { t.addcmul_(other.tensor, other.tensor, 0.125); });
    case 8:
      v.freeze();
      return machine.run("at::relu_(" + v.name + ")", [&] {
        at::Tensor written = t;
        at::relu_(written);
      });
    default:
      // Past autograd: with a gradient it would save what it overwrites.
      return machine.run(v.name + ".detach().clamp_(-0.75, 0.75)", [&] { t.detach().clamp_(-0.75, 0.75); });
  }
}

void write_part_step(Machine& machine, Dice& dice) {
  const Variable v = machine.pick(dice), other = machine.pick(dice);
  const int kind = dice.roll(7);
  const c10::Device on = machine.on();
  if (!machine.may_write(v)) return;
  const at::Tensor& t = v.tensor;
  switch (kind) {
    case 0:
      return machine.run(v.name + ".select(-1, 1).neg_()", [&] { t.select(-1, 1).neg_(); });
    case 1:
      return machine.run(v.name + ".slice(-1, 0, 2).fill_(0.125)", [&] { t.slice(-1, 0, 2).fill_(0.125); });
    case 2:
      return machine.run(v.name + ".index_fill_(0, at::ones({1}, on).to(at::kLong), 0.5)",
                         [&] { t.index_fill_(0, at::ones({1}, on).to(at::kLong), 0.5); });
    case 3:
      return machine.run(v.name + ".masked_fill_(whole(" + other.name + ")[0] > 0, -0.5)",
                         [&] { t.masked_fill_(whole(other.tensor)[0] > 0, -0.5); });
    case 4:
      return machine.run(
          v.name + ".index_put_({at::ones({1}, on).to(at::kLong)}, at::full({}, 0.25, " + v.name + ".options()))",
          [&] { t.index_put_({at::ones({1}, on).to(at::kLong)}, at::full({}, 0.25, t.options())); });
    case 5:
      return machine.run(v.name + ".select(0, 0).copy_(" + other.name + ".select(0, 0))",
                         [&] { t.select(0, 0).copy_(other.tensor.select(0, 0)); });
    default:
      return machine.run(v.name + ".view({-1}).slice(0, 0, 3).mul_(0.5)",
                         [&] { t.view({-1}).slice(0, 0, 3).mul_(0.5); });
  }
}

void out_step(Machine& machine, Dice& dice) {
  Variable v = machine.pick(dice);
  const Variable other = machine.pick(dice);
  const int kind = dice.roll(3);
  // A resized tensor would make of its views what PyTorch does not define.
  if (!machine.may_write(v) || v.tensor.requires_grad() || v.tensor.sizes() != at::IntArrayRef({4, 4})) return;
  const std::string b = "whole(" + other.name + ".detach())";
  switch (kind) {
    case 0:
      return machine.run("at::mm_out(" + v.name + ", " + b + ".sin(), " + b + ".t().cos())", [&] {
        at::mm_out(v.tensor, whole(other.tensor.detach()).sin(), whole(other.tensor.detach()).t().cos());
      });
    case 1:
      return machine.run("at::sin_out(" + v.name + ", " + b + ")",
                         [&] { at::sin_out(v.tensor, whole(other.tensor.detach())); });
    default:
      return machine.run("at::add_out(" + v.name + ", " + v.name + ", " + b + ")",
                         [&] { at::add_out(v.tensor, v.tensor, whole(other.tensor.detach())); });
  }
}

void write_until_backward_step(Machine& machine, Dice& dice) {
  const int kind = dice.roll(6);
  switch (kind) {
    case 0:
      return write_part_step(machine, dice);
    case 1:
      return out_step(machine, dice);
    case 2: {
      const Variable v = machine.pick(dice);
      if (!machine.may_write(v)) return;
      return machine.run(v.name + ".variable_data().lerp_(at::zeros({}, " + v.name + ".options()), 0.25)",
                         [&] { v.tensor.variable_data().lerp_(at::zeros({}, v.tensor.options()), 0.25); });
    }
    case 3:
      if (dice.roll(2) == 0) return write_grid_step(machine, dice);
      [[fallthrough]];
    default:
      return write_step(machine, dice);
  }
}

// Sizes and strides change, bytes do not.
void metadata_step(Machine& machine, Dice& dice) {
  const Variable v = machine.pick(dice);
  const int kind = dice.roll(3);
  if (!machine.may_write(v)) return;
  switch (kind) {
    case 0:
      return machine.run(v.name + ".t_()", [&] { v.tensor.t_(); });
    case 1:
      return machine.run(v.name + ".unsqueeze_(0)", [&] { v.tensor.unsqueeze_(0); });
    default:
      return machine.run(v.name + ".squeeze_()", [&] { v.tensor.squeeze_(); });
  }
}

}  // namespace ac2::test
