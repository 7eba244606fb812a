#include <string>

#include "tests/fuzz/functions.h"
#include "tests/fuzz/steps.h"

namespace ac2::test {

// In the middle of forward, and of a region.
void backward_step(Machine& machine, Dice& dice) {
  const Variable of = machine.pick(dice), input = machine.pick(dice);
  const int kind = dice.roll(4);
  if (!at::isFloatingType(of.tensor.scalar_type()) || !machine.may_take_gradients()) return;
  if (kind == 0) {
    of.freeze();
    return machine.let("slope_of_waves(" + of.name + ")", [&] { return slope_of_waves(of.tensor); });
  }
  if (!of.tensor.requires_grad() || !input.tensor.requires_grad()) return;
  const bool create_graph = kind == 1;
  // A gradient may be what backward saves for its own derivative, or another one's.
  machine.let(
      "slope(" + of.name + ", " + input.name + (create_graph ? ", true)" : ", false)"),
      [&] { return slope(of.tensor, input.tensor, create_graph); }, /*frozen=*/create_graph);
}

void custom_function_step(Machine& machine, Dice& dice) {
  const Variable v = machine.pick(dice);
  const bool writes = dice.roll(2) == 0;
  if (!at::isFloatingType(v.tensor.scalar_type())) return;
  if (!writes) {
    v.freeze();
    return machine.let("wave(" + v.name + ")", [&] { return wave(v.tensor); });
  }
  if (!machine.may_write(v)) return;
  v.freeze();
  machine.let(
      "damp_(" + v.name + ")", [&] { return damp_(v.tensor); }, /*frozen=*/true);
}

void gradient_hook_step(Machine& machine, Dice& dice) {
  const Variable v = machine.pick(dice);
  if (!v.tensor.requires_grad() || machine.is_input(v)) return;
  machine.run(v.name + ".register_hook(damped_gradient)", [&] { v.tensor.register_hook(damped_gradient); });
}

}  // namespace ac2::test
