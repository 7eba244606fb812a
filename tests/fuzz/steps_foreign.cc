#include <string>

#include "tests/fuzz/functions.h"
#include "tests/fuzz/steps.h"

namespace ac2::test {

namespace {

void read_grid_step(Machine& machine, const Variable& v, int kind) {
  const c10::Device on = machine.on();
  machine.let("whole(" + v.name + ") * grids.dense(" + std::to_string(kind) + ").to(on).cos()",
              [&] { return whole(v.tensor) * machine.grids().dense(kind).to(on).cos(); });
}

void grid_step(Machine& machine, Dice& dice) {
  if (!machine.may_have_grids()) return;
  const int what = dice.roll(6);
  if (what < 3) {
    return write_grid_step(machine, dice);
  }
  const Variable v = machine.pick(dice);
  const c10::Device on = machine.on();
  if (what == 3) {
    machine.let("grids.times_factor(whole(" + v.name + ").to(at::kCPU, at::kFloat)).to(on).cos()",
                [&] { return machine.grids().times_factor(whole(v.tensor).to(at::kCPU, at::kFloat)).to(on).cos(); });
  } else if (what == 4) {
    const int kind = dice.roll(2);
    machine.let("whole(" + v.name + ") * grids.values(" + std::to_string(kind) + ").to(on).cos()",
                [&] { return whole(v.tensor) * machine.grids().values(kind).to(on).cos(); });
  } else {
    read_grid_step(machine, v, dice.roll(Grids::kKinds));
  }
}

// Functions of the program's that are ops.
void replayable_step(Machine& machine, Dice& dice) {
  if (!machine.may_call_functions()) return;
  const Variable v = machine.pick(dice), w = machine.pick(dice);
  if (dice.roll(2) == 0) {
    const double scale = 0.25 * (1 + dice.roll(4));
    return machine.let("whole(" + v.name + ") * fused(" + v.name + ".detach(), " + w.name + ".detach(), " +
                           std::to_string(scale) + ")",
                       [&] { return whole(v.tensor) * fused(v.tensor.detach(), w.tensor.detach(), scale); });
  }
  if (!machine.may_draw()) return;
  machine.let_several("noisy_pair(" + v.name + ".detach())", [&] { return noisy_pair(v.tensor.detach()); });
}

}  // namespace

void write_grid_step(Machine& machine, Dice& dice) {
  if (!machine.may_have_grids()) return;
  const int kind = dice.roll(Grids::kKinds);
  const int way = dice.roll(3);
  machine.run("grids.write(" + std::to_string(kind) + ", " + std::to_string(way) + ")",
              [&] { machine.grids().write(kind, way); });
}

// Autograd saves nothing of what lies in the buffer: no step multiplies it with what requires a gradient. So plain
// PyTorch does not see the writes. A kernel writes to what nobody has read yet.
void foreign_step(Machine& machine, Dice& dice) {
  const c10::Device on = machine.on();
  const Variable v = machine.pick(dice);
  Buffer& buffer = machine.buffer();
  const int filler = dice.roll(4);
  switch (dice.roll(11)) {
    case 0:
      return machine.let("whole(" + v.name + ") + buffer.floats().to(on)",
                         [&] { return whole(v.tensor) + buffer.floats().to(on); });
    case 1:
      return machine.let("buffer.bytes().to(on).to(at::kFloat) / 255",
                         [&] { return buffer.bytes().to(on).to(at::kFloat) / 255; });
    case 2:
      if (dice.roll(3) != 0) return grid_step(machine, dice);
      return machine.let("buffer.floats().to(on).sin().sum(0)", [&] { return buffer.floats().to(on).sin().sum(0); });
    case 3:
    case 4:
      return machine.run("buffer.fill(" + std::to_string(filler) + ")", [&] { buffer.fill(filler); });
    case 5:
      return machine.run("buffer.floats().mul_(0.75)", [&] { buffer.floats().mul_(0.75); });
    case 6:
      if (!machine.may_run_kernels()) return;
      return machine.let("whole(" + v.name + ") * by_kernel(" + v.name + ", regions)",
                         [&] { return whole(v.tensor) * by_kernel(v.tensor, machine.regions()); });
    case 7:
      return machine.run("buffer.floats().copy_(whole(" + v.name + ".detach()))",
                         [&] { buffer.floats().copy_(whole(v.tensor.detach())); });
    case 8:
    case 9:
      return replayable_step(machine, dice);
    default:
      if (!machine.may_write(v)) return;
      return machine.run("clamp_through_alias(" + v.name + ")", [&] { clamp_through_alias(v.tensor); });
  }
}

}  // namespace ac2::test
