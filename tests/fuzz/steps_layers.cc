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
    {"bend", bend},
    {"in_modules", in_modules},
};

}  // namespace

// The layers that networks are made of.
void layer_step(Machine& machine, Dice& dice) {
  const Variable v = machine.pick(dice), w = machine.pick(dice);
  const Layer& layer = kLayers[dice.roll(std::size(kLayers))];
  v.freeze();
  w.freeze();
  machine.let(
      layer.name + ("(" + v.name + ", " + w.name + ")"), [&] { return layer.fn(v.tensor, w.tensor); }, /*frozen=*/true);
}

}  // namespace ac2::test
