#include "tests/support/random_program.h"

#include <ATen/core/grad_mode.h>

#include <optional>
#include <utility>

namespace ac2::test {

Tensors Program::operator()(const Tensors& inputs, const Policy* policy) {
  Dice dice(seed_);
  variables_.clear();
  for (const at::Tensor& input : inputs) {
    variables_.push_back({input, std::make_shared<bool>(true)});
  }
  int64_t refused = 0;
  for (int part = 0; part < 4; ++part) {
    std::optional<PolicyScope> scope;
    if (policy != nullptr) scope.emplace(*policy);
    if (parts_are_apart_) {
      // What an earlier region may need must not be written by a later one.
      for (Variable& v : variables_) v.frozen = std::make_shared<bool>(true);
    }
    for (int i = 0; i < 10; ++i) {
      try {
        step(dice);
      } catch (const c10::Error&) {
        ++refused;  // by PyTorch, for overlapping memory say: in a region exactly as outside
      }
    }
  }
  Tensors outputs = {at::scalar_tensor(refused)};
  for (const Variable& v : variables_) {
    if (dice.roll(3) == 0) outputs.push_back(v.tensor * 1);
  }
  outputs.push_back(variables_.back().tensor.sum());
  variables_.clear();
  return outputs;
}

void Program::add(at::Tensor tensor, bool frozen) {
  variables_.push_back({std::move(tensor), std::make_shared<bool>(frozen)});
}

void Program::step(Dice& dice) {
  switch (dice.roll(15)) {
    case 0:
      return nonlinear(dice);
    case 1:
      return linear(dice);
    case 2:
      return product(dice);
    case 3:
    case 4:
      return view(dice);
    case 5:
    case 6:
    case 7:
      return write(dice);
    case 8:
      return draw(dice);
    case 9:
      return tag(dice);
    case 10:
      return several(dice);
    case 11:
      return elsewhere(dice);
    case 12:
    case 13:
      if (variables_.size() > 6) variables_.erase(variables_.begin() + dice.roll(6));
      return;
    default:
      return without_gradient(dice);
  }
}

void Program::nonlinear(Dice& dice) {
  Variable& v = pick(dice);
  switch (dice.roll(5)) {
    case 0:
      *v.frozen = true;
      return add(v.tensor.sin(), false);
    case 1:
      *v.frozen = true;
      return add(v.tensor.cos(), false);
    case 2:
      return add(v.tensor.sigmoid(), true);  // autograd saves the result
    case 3:
      return add(v.tensor.tanh(), true);
    default:
      return add(v.tensor.softmax(-1), true);
  }
}

void Program::linear(Dice& dice) {
  at::Tensor a = pick(dice).tensor, b = pick(dice).tensor;
  switch (dice.roll(4)) {
    case 0:
      return add(whole(a) + whole(b), false);
    case 1:
      return add(a * 0.5, false);
    case 2:
      return add(at::cat({whole(a), whole(b)}).slice(0, 2, 6), false);
    default:
      return add(whole(a).t().clone(), false);
  }
}

void Program::product(Dice& dice) {
  Variable &a = pick(dice), &b = pick(dice);
  *a.frozen = *b.frozen = true;
  at::Tensor y = dice.roll(2) == 0 ? whole(a.tensor) * whole(b.tensor) : whole(a.tensor).mm(whole(b.tensor)) * 0.25;
  add(y, false);
}

void Program::view(Dice& dice) {
  Variable v = pick(dice);
  switch (dice.roll(4)) {
    case 0:
      // Not of an expanded tensor: PyTorch's own backward of a write to such a view fails.
      if (v.tensor.dim() != 2) return;
      v.tensor = v.tensor.t();
      break;
    case 1:
      v.tensor = v.tensor.dim() == 2 ? v.tensor.select(0, v.tensor.size(0) - 1) : v.tensor;
      break;
    case 2:
      v.tensor = v.tensor.slice(-1, 0, 4).view_as(v.tensor);
      break;
    default:
      v.tensor = v.tensor.detach();
  }
  variables_.push_back(v);
}

void Program::write(Dice& dice) {
  Variable& v = pick(dice);
  Variable& other = pick(dice);
  const int kind = dice.roll(10);
  if (*v.frozen || v.tensor.stride(0) == 0 || v.tensor.numel() < 4) return;
  switch (kind) {
    case 0:
      v.tensor.mul_(0.75);
      return;
    case 1:
      v.tensor.add_(other.tensor.dim() <= v.tensor.dim() ? other.tensor : v.tensor, 0.5);
      return;
    case 2:
      v.tensor.select(-1, 1).neg_();
      return;
    case 3:
      *v.frozen = true;
      v.tensor.tanh_();
      return;
    case 4:
      if (other.tensor.dim() <= v.tensor.dim()) v.tensor.copy_(other.tensor);
      return;
    case 5:
      v.tensor.slice(-1, 0, 2).fill_(0.125);
      return;
    case 6:
      at::_foreach_mul_({v.tensor}, 1.25);
      return;
    case 7:
      v.tensor.index_fill_(0, at::tensor({int64_t{1}}), 0.5);
      return;
    case 8:
      v.tensor.masked_fill_(whole(other.tensor)[0] > 0, -0.5);
      return;
    default:
      if (v.tensor.dim() == 2 && !v.tensor.requires_grad()) {
        at::mm_out(v.tensor, whole(other.tensor).detach(), whole(other.tensor).detach().t());
      }
  }
}

// Ops with several results, or with a state.
void Program::several(Dice& dice) {
  Variable& v = pick(dice);
  at::Tensor t = whole(v.tensor);
  switch (dice.roll(4)) {
    case 0: {
      auto [values, indices] = t.sort(-1);
      return add(values, false);
    }
    case 1: {
      *v.frozen = true;
      Tensors parts = at::_foreach_add({t, t.t()}, 0.5);
      add(parts[0], false);
      return add(parts[1], false);
    }
    case 2: {
      *v.frozen = true;
      Variable& state = pick(dice);
      at::Tensor mean = state.tensor.detach();
      if (*state.frozen || mean.dim() != 1 || mean.numel() != 4) return;
      *state.frozen = true;  // saved, though training does not need it
      return add(at::batch_norm(t, {}, {}, mean, {}, true, 0.1, 1e-5, false), false);
    }
    default: {
      *v.frozen = true;
      auto [variance, mean] = at::var_mean(t, at::OptionalIntArrayRef({0}));
      add(variance, false);
      return add(mean, false);
    }
  }
}

// What the region does not see, and comes back into it.
void Program::elsewhere(Dice& dice) {
  DisableCheckpointing disable;
  Variable& v = pick(dice);
  *v.frozen = true;
  add(v.tensor.sin() * 0.5, false);
}

void Program::draw(Dice& dice) {
  Variable& v = pick(dice);
  switch (dice.roll(3)) {
    case 0:
      return add(whole(v.tensor) + at::randn({4, 4}), false);
    case 1:
      return add(at::dropout(whole(v.tensor), 0.25, true), false);
    default:
      return add(at::empty({4, 4}).bernoulli_(0.5), false);
  }
}

void Program::tag(Dice& dice) {
  static constexpr CheckpointPolicy kDecisions[] = {CheckpointPolicy::MUST_SAVE, CheckpointPolicy::PREFER_SAVE,
                                                    CheckpointPolicy::MUST_RECOMPUTE};
  at::Tensor tensor = pick(dice).tensor;
  tag_with_policy(tensor, kDecisions[dice.roll(3)]);
}

void Program::without_gradient(Dice& dice) {
  at::NoGradGuard guard;
  Variable& v = pick(dice);
  add(whole(v.tensor).cos() + 1, false);
}

}  // namespace ac2::test
