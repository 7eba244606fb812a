#include <iterator>
#include <string>

#include "tests/fuzz/functions.h"
#include "tests/fuzz/steps.h"

namespace ac2::test {

void default_dtype_step(Machine& machine, Dice& dice) {
  static constexpr at::ScalarType kTypes[] = {at::kFloat, at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};
  const at::ScalarType type = kTypes[dice.roll(std::size(kTypes))];
  if (machine.may_set_default_dtype()) machine.set_default_dtype(type);
}

void by_default_dtype_step(Machine& machine, Dice& dice) {
  const c10::Device on = machine.on();
  const Variable v = machine.pick(dice);
  switch (dice.roll(5)) {
    case 0:
      return machine.let("at::arange(1, 5, on) / 7", [&] { return at::arange(1, 5, on) / 7; });
    case 1:
      return machine.let("at::arange(4, on).sqrt()", [&] { return at::arange(4, on).sqrt(); });
    case 2:
      v.freeze();
      return machine.let("(at::arange(1, 17, on).view({4, 4}) / 7).exp().to(at::kFloat) * whole(" + v.name + ")", [&] {
        return (at::arange(1, 17, on).view({4, 4}) / 7).exp().to(at::kFloat) * whole(v.tensor);
      });
    case 3:
      return machine.let("at::ones({4}, on).to(at::kLong).mean(at::IntArrayRef{}, false, at::kFloat)",
                         [&] { return at::ones({4}, on).to(at::kLong).mean(at::IntArrayRef{}, false, at::kFloat); });
    default:
      if (!machine.may_draw()) return;
      return machine.let("at::rand({4, 4}, on) + whole(" + v.name + ")", [&] {
        return at::rand({4, 4}, on) + whole(v.tensor);
      });
  }
}

}  // namespace ac2::test
