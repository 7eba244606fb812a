#include <array>
#include <string>

#include "tests/fuzz/functions.h"
#include "tests/fuzz/steps.h"

namespace ac2::test {

namespace {

// Which of its tensors autograd saves, so that plain PyTorch forbids to write them.
enum class Saves { kNothing, kInput, kResult, kBoth };

bool saves_input(Saves saves) {
  return saves == Saves::kInput || saves == Saves::kBoth;
}

bool saves_result(Saves saves) {
  return saves == Saves::kResult || saves == Saves::kBoth;
}

struct Unary {
  const char* text;  // after the variable's name
  at::Tensor (*fn)(const at::Tensor&);
  Saves saves;
};

// None that grows: infinities would hide what is wrong.
constexpr std::array<Unary, 22> kUnary = {{
    {".sin()", [](const at::Tensor& t) { return t.sin(); }, Saves::kInput},
    {".cos()", [](const at::Tensor& t) { return t.cos(); }, Saves::kInput},
    {".sigmoid()", [](const at::Tensor& t) { return t.sigmoid(); }, Saves::kResult},
    {".tanh()", [](const at::Tensor& t) { return t.tanh(); }, Saves::kResult},
    {".softmax(-1)", [](const at::Tensor& t) { return t.softmax(-1); }, Saves::kResult},
    {".log_softmax(0)", [](const at::Tensor& t) { return t.log_softmax(0); }, Saves::kResult},
    {".relu()", [](const at::Tensor& t) { return t.relu(); }, Saves::kResult},
    {".abs()", [](const at::Tensor& t) { return t.abs(); }, Saves::kInput},
    {".clone()", [](const at::Tensor& t) { return t.clone(); }, Saves::kNothing},
    {".neg()", [](const at::Tensor& t) { return t.neg(); }, Saves::kNothing},
    {" * 0.5", [](const at::Tensor& t) { return t * 0.5; }, Saves::kNothing},
    {" + 0.25", [](const at::Tensor& t) { return t + 0.25; }, Saves::kNothing},
    {".contiguous()", [](const at::Tensor& t) { return t.contiguous(); }, Saves::kBoth},  // perhaps the same tensor
    {".cumsum(0).tanh()", [](const at::Tensor& t) { return t.cumsum(0).tanh(); }, Saves::kResult},
    {".to(at::kDouble)", [](const at::Tensor& t) { return t.to(at::kDouble); }, Saves::kBoth},
    {".to(at::kFloat)", [](const at::Tensor& t) { return t.to(at::kFloat); }, Saves::kBoth},
    {".to(at::kBFloat16)", [](const at::Tensor& t) { return t.to(at::kBFloat16); }, Saves::kBoth},
    {".clamp(-0.5, 0.75)", [](const at::Tensor& t) { return t.clamp(-0.5, 0.75); }, Saves::kInput},
    {".atan()", [](const at::Tensor& t) { return t.atan(); }, Saves::kInput},
    {".flip(0)", [](const at::Tensor& t) { return t.flip(0); }, Saves::kNothing},
    {".roll(1, 0)", [](const at::Tensor& t) { return t.roll(1, 0); }, Saves::kNothing},
    {".tril()", [](const at::Tensor& t) { return t.tril(); }, Saves::kNothing},
}};

struct Binary {
  const char* before;
  const char* between;
  const char* after;
  at::Tensor (*fn)(const at::Tensor&, const at::Tensor&);
  Saves saves;
};

constexpr std::array<Binary, 12> kBinary = {{
    {"", " + ", "", [](const at::Tensor& a, const at::Tensor& b) { return a + b; }, Saves::kNothing},
    {"whole(", ") - whole(", ")", [](const at::Tensor& a, const at::Tensor& b) { return whole(a) - whole(b); },
     Saves::kNothing},
    {"whole(", ") * whole(", ").cos()",
     [](const at::Tensor& a, const at::Tensor& b) { return whole(a) * whole(b).cos(); }, Saves::kInput},
    {"whole(", ").sin().mm(whole(", ").to(at::kFloat))",
     [](const at::Tensor& a, const at::Tensor& b) { return whole(a).sin().mm(whole(b).to(at::kFloat)); },
     Saves::kInput},
    {"at::cat({whole(", "), whole(", ")}).slice(0, 2, 6)",
     [](const at::Tensor& a, const at::Tensor& b) {
       return at::cat({whole(a), whole(b)}).slice(0, 2, 6);
     },
     Saves::kNothing},
    {"at::stack({whole(", "), whole(", ")})",
     [](const at::Tensor& a, const at::Tensor& b) {
       return at::stack({whole(a), whole(b)});
     },
     Saves::kNothing},
    {"at::where(whole(", ") > 0, whole(", "), 0.5)",
     [](const at::Tensor& a, const at::Tensor& b) { return at::where(whole(a) > 0, whole(b), 0.5); }, Saves::kNothing},
    {"at::maximum(whole(", "), whole(", "))",
     [](const at::Tensor& a, const at::Tensor& b) { return at::maximum(whole(a), whole(b)); }, Saves::kInput},
    {"whole(", ").lerp(whole(", ").to(at::kFloat), 0.25)",
     [](const at::Tensor& a, const at::Tensor& b) { return whole(a).lerp(whole(b).to(at::kFloat), 0.25); },
     Saves::kNothing},
    {"at::addmm(whole(", ").sin(), at::eye(4), whole(", ").cos())",
     [](const at::Tensor& a, const at::Tensor& b) { return at::addmm(whole(a).sin(), at::eye(4), whole(b).cos()); },
     Saves::kInput},
    {"at::gelu(whole(", ") + whole(", "))",
     [](const at::Tensor& a, const at::Tensor& b) { return at::gelu(whole(a) + whole(b)); }, Saves::kNothing},
    {"whole(", ").div(whole(", ").square() + 1)",
     [](const at::Tensor& a, const at::Tensor& b) { return whole(a).div(whole(b).square() + 1); }, Saves::kInput},
}};

}  // namespace

void unary_step(Machine& machine, Dice& dice) {
  const Variable v = machine.pick(dice);
  const Unary& op = kUnary[dice.roll(kUnary.size())];
  if (saves_input(op.saves)) v.freeze();
  machine.let(
      v.name + op.text, [&] { return op.fn(v.tensor); }, saves_result(op.saves));
}

void binary_step(Machine& machine, Dice& dice) {
  const Variable a = machine.pick(dice), b = machine.pick(dice);
  const Binary& op = kBinary[dice.roll(kBinary.size())];
  if (saves_input(op.saves)) {
    a.freeze();
    b.freeze();
  }
  machine.let(
      op.before + a.name + op.between + b.name + op.after, [&] { return op.fn(a.tensor, b.tensor); },
      saves_result(op.saves));
}

void several_results_step(Machine& machine, Dice& dice) {
  const Variable v = machine.pick(dice);
  switch (dice.roll(7)) {
    case 0:
      return machine.let("std::get<0>(whole(" + v.name + ").sort(-1))",
                         [&] { return std::get<0>(whole(v.tensor).sort(-1)); });
    case 1:
      v.freeze();
      return machine.let_several("at::_foreach_add({whole(" + v.name + "), whole(" + v.name + ").t()}, 0.5)", [&] {
        return at::_foreach_add({whole(v.tensor), whole(v.tensor).t()}, 0.5);
      });
    case 2:
      v.freeze();
      return machine.let("std::get<0>(at::var_mean(whole(" + v.name + "), at::OptionalIntArrayRef({0})))",
                         [&] { return std::get<0>(at::var_mean(whole(v.tensor), at::OptionalIntArrayRef({0}))); });
    case 3:
      return machine.let("std::get<0>(whole(" + v.name + ").topk(2))",
                         [&] { return std::get<0>(whole(v.tensor).topk(2)); });
    case 4: {
      v.freeze();
      const Variable state = machine.pick(dice);
      // The running mean, if it may be written.
      if (!machine.may_write(state) || state.tensor.dim() != 1 || state.tensor.numel() != 4 ||
          state.tensor.scalar_type() != at::kFloat) {
        return;
      }
      state.freeze();
      const c10::Device on = machine.on();
      return machine.let("at::batch_norm(whole(" + v.name + ").to(at::kFloat), {}, {}, " + state.name +
                             ".detach(), at::ones({4}, on), true, 0.1, 1e-5, false)",
                         [&] {
                           return at::batch_norm(whole(v.tensor).to(at::kFloat), {}, {}, state.tensor.detach(),
                                                 at::ones({4}, on), true, 0.1, 1e-5, false);
                         });
    }
    case 5:
      v.freeze();
      return machine.let("std::get<0>(at::native_layer_norm(whole(" + v.name + "), {4}, {}, {}, 1e-5))", [&] {
        return std::get<0>(at::native_layer_norm(whole(v.tensor), at::IntArrayRef{4}, {}, {}, 1e-5));
      });
    default:
      return machine.let("std::get<0>(whole(" + v.name + ").max(1))",
                         [&] { return std::get<0>(whole(v.tensor).max(1)); });
  }
}

void reduction_step(Machine& machine, Dice& dice) {
  const Variable v = machine.pick(dice);
  switch (dice.roll(5)) {
    case 0:
      return machine.let(v.name + ".mean(0)", [&] { return v.tensor.mean(0); });
    case 1:
      return machine.let(v.name + ".sum(-1, true)", [&] { return v.tensor.sum(-1, true); });
    case 2:
      v.freeze();
      return machine.let(
          v.name + ".logsumexp(0)", [&] { return v.tensor.logsumexp(0); }, true);
    case 3:
      v.freeze();
      return machine.let(
          v.name + ".norm()", [&] { return v.tensor.norm(); }, true);
    default:
      v.freeze();
      return machine.let(
          v.name + ".amax(0)", [&] { return v.tensor.amax(0); }, true);
  }
}

void indexing_step(Machine& machine, Dice& dice) {
  const c10::Device on = machine.on();
  const Variable v = machine.pick(dice), other = machine.pick(dice);
  const std::string t = "whole(" + v.name + ")";
  switch (dice.roll(6)) {
    case 0:
      return machine.let(t + ".index_select(0, at::arange(3, on))",
                         [&] { return whole(v.tensor).index_select(0, at::arange(3, on)); });
    case 1:
      other.freeze();
      return machine.let(t + ".masked_fill(whole(" + other.name + ") > 0.25, 0)",
                         [&] { return whole(v.tensor).masked_fill(whole(other.tensor) > 0.25, 0); });
    case 2:
      v.freeze();
      return machine.let(t + ".gather(1, at::ones({4, 2}, on).to(at::kLong))", [&] {
        return whole(v.tensor).gather(1, at::ones({4, 2}, on).to(at::kLong));
      });
    case 3:
      return machine.let(t + ".index({whole(" + other.name + ")[0] > 0})",
                         [&] { return whole(v.tensor).index({whole(other.tensor)[0] > 0}); });
    case 4:
      return machine.let("at::embedding(" + t + ", whole(" + other.name + ").argmax(1))",
                         [&] { return at::embedding(whole(v.tensor), whole(other.tensor).argmax(1)); });
    default:
      other.freeze();
      return machine.let(
          t + ".index_add(0, at::arange(4, on), whole(" + other.name + ").to(" + v.name + ".dtype()))",
          [&] { return whole(v.tensor).index_add(0, at::arange(4, on), whole(other.tensor).to(v.tensor.dtype())); });
  }
}

void constant_step(Machine& machine, Dice& dice) {
  const c10::Device on = machine.on();
  const Variable v = machine.pick(dice);
  switch (dice.roll(6)) {
    case 0:
      return machine.let("at::zeros({4, 4}, on)", [&] { return at::zeros({4, 4}, on); });
    case 1:
      return machine.let("at::full({4}, 0.5, on)", [&] { return at::full({4}, 0.5, on); });
    case 2:
      return machine.let("at::arange(4, on) * 0.25", [&] { return at::arange(4, on) * 0.25; });
    case 3:
      return machine.let("at::ones_like(" + v.name + ")", [&] { return at::ones_like(v.tensor); });
    case 4:
      return machine.let("at::zeros({4, 4}, at::device(on).dtype(at::kDouble))", [&] {
        return at::zeros({4, 4}, at::device(on).dtype(at::kDouble));
      });
    default:
      return machine.let("at::tensor({0.5, -0.25, 1.0, 0.0}, on)", [&] {
        return at::tensor({0.5, -0.25, 1.0, 0.0}, on);
      });
  }
}

void draw_step(Machine& machine, Dice& dice) {
  const c10::Device on = machine.on();
  const Variable v = machine.pick(dice);
  if (!machine.may_draw()) return;
  switch (dice.roll(6)) {
    case 0:
      return machine.let("whole(" + v.name + ") + at::randn({4, 4}, on)", [&] {
        return whole(v.tensor) + at::randn({4, 4}, on);
      });
    case 1:
      v.freeze();
      return machine.let("at::dropout(whole(" + v.name + "), 0.25, true)",
                         [&] { return at::dropout(whole(v.tensor), 0.25, true); });
    case 2:
      return machine.let("at::empty({4, 4}, on).bernoulli_(0.5)", [&] {
        return at::empty({4, 4}, on).bernoulli_(0.5);
      });
    case 3:
      v.freeze();
      return machine.let("at::rrelu(whole(" + v.name + "), 0.1, 0.4, true)",
                         [&] { return at::rrelu(whole(v.tensor), 0.1, 0.4, true); });
    case 4:
      return machine.let("at::rand_like(whole(" + v.name + "))", [&] { return at::rand_like(whole(v.tensor)); });
    default:
      return machine.let("at::randperm(4, on) * 0.25", [&] { return at::randperm(4, on) * 0.25; });
  }
}

}  // namespace ac2::test
