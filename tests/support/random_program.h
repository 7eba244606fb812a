// Programs drawn at random, the same for the same seed everywhere.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "tests/support/regions.h"

namespace ac2::test {

// std::mt19937 is the same everywhere, the standard distributions are not.
class Dice {
 public:
  explicit Dice(uint32_t seed) : engine_(seed) {}
  int roll(int sides) { return static_cast<int>(engine_() % static_cast<uint32_t>(sides)); }

 private:
  std::mt19937 engine_;
};

// A tensor, and whether autograd has saved its storage, which plain PyTorch then forbids to write.
struct Variable {
  at::Tensor tensor;
  std::shared_ptr<bool> frozen = std::make_shared<bool>(false);
};

// Forty steps on a pool of small tensors. Steps that PyTorch refuses are refused in a region too.
class Program {
 public:
  // `parts_are_apart`: no tensor is written in another quarter of the program than it was made in.
  explicit Program(uint32_t seed, bool parts_are_apart = false) : seed_(seed), parts_are_apart_(parts_are_apart) {}

  // In regions of ten steps each if `policy` is given.
  Tensors operator()(const Tensors& inputs, const Policy* policy = nullptr);

 private:
  Variable& pick(Dice& dice) { return variables_[dice.roll(static_cast<int>(variables_.size()))]; }
  // Four by four again, whatever view it is.
  static at::Tensor whole(const at::Tensor& t) { return t.expand({4, 4}); }

  void add(at::Tensor tensor, bool frozen);
  void step(Dice& dice);
  void nonlinear(Dice& dice);
  void linear(Dice& dice);
  void product(Dice& dice);
  void view(Dice& dice);
  void write(Dice& dice);
  void several(Dice& dice);
  void elsewhere(Dice& dice);
  void draw(Dice& dice);
  void tag(Dice& dice);
  void without_gradient(Dice& dice);

  uint32_t seed_;
  bool parts_are_apart_;
  std::vector<Variable> variables_;
};

}  // namespace ac2::test
