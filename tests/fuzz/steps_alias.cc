#include <string>

#include "tests/fuzz/steps.h"

namespace ac2::test {

void view_step(Machine& machine, Dice& dice) {
  const Variable v = machine.pick(dice);
  switch (dice.roll(12)) {
    case 0:
      return machine.let_view(v, v.name + ".t()", [&] { return v.tensor.t(); });
    case 1:
      return machine.let_view(v, v.name + ".select(0, 1)", [&] { return v.tensor.select(0, 1); });
    case 2:
      return machine.let_view(v, v.name + ".slice(-1, 1, 3)", [&] { return v.tensor.slice(-1, 1, 3); });
    case 3:
      return machine.let_view(v, v.name + ".view({-1})", [&] { return v.tensor.view({-1}); });
    case 4:
      return machine.let_view(v, v.name + ".unsqueeze(0)", [&] { return v.tensor.unsqueeze(0); });
    case 5:
      return machine.let_view(v, v.name + ".detach()", [&] { return v.tensor.detach(); });
    case 6:
      return machine.let_view(v, v.name + ".diagonal()", [&] { return v.tensor.diagonal(); });
    case 7:
      return machine.let_view(v, v.name + ".as_strided({2, 2}, {2, 1}, 1)", [&] {
        return v.tensor.as_strided({2, 2}, {2, 1}, 1);
      });
    case 8:
      // Never written again: PyTorch's own backward of a write to such a view fails.
      v.freeze();
      return machine.let_view(v, v.name + ".unsqueeze(0).expand({2, -1, -1})", [&] {
        return v.tensor.unsqueeze(0).expand({2, -1, -1});
      });
    case 9:
      return machine.let_view(v, "at::_neg_view(" + v.name + ")", [&] { return at::_neg_view(v.tensor); });
    case 10:
      return machine.let_view(v, v.name + ".view_as(" + v.name + ")", [&] { return v.tensor.view_as(v.tensor); });
    default:
      return machine.let_view(v, v.name + ".split(2)[0]", [&] { return v.tensor.split(2)[0]; });
  }
}

// With a version counter of its own.
void alias_step(Machine& machine, Dice& dice) {
  const Variable v = machine.pick(dice);
  switch (dice.roll(2)) {
    case 0:
      return machine.let_view(v, v.name + ".variable_data()", [&] { return v.tensor.variable_data(); });
    default:
      return machine.let_view(
          v,
          "at::empty({0}, " + v.name + ".options()).set_(" + v.name + ".storage(), " + v.name + ".storage_offset(), " +
              v.name + ".sizes(), " + v.name + ".strides())",
          [&] {
            const at::Tensor& t = v.tensor;
            return at::empty({0}, t.options()).set_(t.storage(), t.storage_offset(), t.sizes(), t.strides());
          });
  }
}

}  // namespace ac2::test
