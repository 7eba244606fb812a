#include <iterator>
#include <string>

#include "tests/fuzz/functions.h"
#include "tests/fuzz/steps.h"

namespace ac2::test {

namespace {

struct Layer {
  const char* name;
  at::Tensor (*fn)(const at::Tensor&, const at::Tensor&);
};

constexpr Layer kLayers[] = {
    {"linear_layer", linear_layer},
    {"convolution", convolution},
    {"attention", attention},
    {"lstm_step", lstm_step},
    {"norms", norms},
    {"loss", loss},
    {"turned", turned},
    {"inferred", inferred},
    {"aside", aside},
    {"in_modules", in_modules},
    {"bend", bend},  // the last: an op by ac2::replayable
};

}  // namespace

// The layers that networks are made of.
void layer_step(Machine& machine, Dice& dice) {
  const Variable v = machine.pick(dice), w = machine.pick(dice);
  const Layer& layer =
      kLayers[dice.roll(static_cast<int>(std::size(kLayers)) - (machine.may_call_functions() ? 0 : 1))];
  v.freeze();
  w.freeze();
  machine.let(
      layer.name + ("(" + v.name + ", " + w.name + ")"), [&] { return layer.fn(v.tensor, w.tensor); }, /*frozen=*/true);
}

}  // namespace ac2::test
