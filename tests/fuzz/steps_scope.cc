#include "tests/fuzz/steps.h"

namespace ac2::test {

void scope_step(Machine& machine, Dice& dice) {
  switch (dice.roll(8)) {
    case 0:
      return machine.begin_region();
    case 1:
    case 2:
    case 3:
      return machine.close_scope();
    default:
      return machine.open_scope(dice);
  }
}

void tag_step(Machine& machine, Dice& dice) {
  machine.tag(machine.pick(dice), dice.roll(6));
}

void mode_step(Machine& machine, Dice& dice) {
  switch (dice.roll(12)) {
    case 0:
      return machine.begin_no_grad();
    case 1:
    case 2:
    case 3:
      return machine.end_no_grad();
    case 4:
      return machine.disable();
    case 5:
    case 6:
    case 7:
      return machine.enable();
    case 8:
      return machine.begin_autocast();
    default:
      return machine.end_autocast();
  }
}

void any_step(Machine& machine, Dice& dice) {
  struct Family {
    int weight;
    void (*step)(Machine&, Dice&);
  };
  static constexpr Family kFamilies[] = {
      {5, unary_step},
      {5, binary_step},
      {2, several_results_step},
      {1, reduction_step},
      {2, indexing_step},
      {2, constant_step},
      {3, draw_step},
      {5, view_step},
      {1, alias_step},
      {7, write_step},
      {4, write_part_step},
      {1, out_step},
      {1, metadata_step},
      {1, backward_step},
      {1, custom_function_step},
      {1, gradient_hook_step},
      {3, layer_step},
      {2, scope_step},
      {2, tag_step},
      {2, mode_step},
      {2, foreign_step},
      {4, [](Machine& machine, Dice& d) { machine.forget(d); }},
      {2, last_use_step},
      {1, set_step},
      {1, set_data_step},
      {1, default_dtype_step},
      {1, by_default_dtype_step},
  };
  int total = 0;
  for (const Family& family : kFamilies) total += family.weight;
  int at = dice.roll(total);
  for (const Family& family : kFamilies) {
    at -= family.weight;
    if (at < 0) return family.step(machine, dice);
  }
}

}  // namespace ac2::test
