#include <tuple>
#include <utility>

#include "tests/fuzz/loop_steps.h"

namespace ac2::test {

namespace {

LoopModel& model_of(LoopState& s, int which) {
  return s.models[static_cast<size_t>(which) % s.models.size()];
}

std::string in_model(int which) {
  return "model " + std::to_string(which);
}

void remember(LoopState& s, const at::Tensor& t, int most) {
  s.last.push_back(t);
  while (static_cast<int>(s.last.size()) > most) s.last.pop_front();
}

LoopStep sum_step(Dice& dice) {
  switch (dice.roll(5)) {
    case 0:
      return {"total = total + loss, detached", [](LoopState& s, int) { s.total = s.total + s.last_loss; }, true};
    case 1:
      return {"total += loss, under no_grad", [](LoopState& s, int) {
                const torch::NoGradGuard no_grad;
                if (!s.is_pending()) s.total += s.last_loss;
              }};
    case 2:
      return {"mean = 0.9 mean + y, detached", [](LoopState& s, int) { s.mean = s.mean * 0.9 + s.y.detach(); }, true};
    case 3:
      return {"mean.mul_(0.9).add_(x)", [](LoopState& s, int) {
                const torch::NoGradGuard no_grad;
                if (!s.is_pending()) s.mean.mul_(0.9).add_(s.x);
              }};
    default:
      return {"noise = 0.9 noise + randn, no_grad",
              [](LoopState& s, int) {
                const torch::NoGradGuard no_grad;
                s.noise = s.noise * 0.9 + at::randn({kLoopRows, kLoopWidth});
              },
              true};
  }
}

LoopStep state_step(Dice& dice) {
  const int which = dice.roll(2);
  const int rounds = 1 + dice.roll(4);
  switch (dice.roll(9)) {
    case 0:
      return {"h = y, detached", [](LoopState& s, int) { s.h = s.y.detach(); }};
    case 1:
      return {"h = " + in_model(which) + "(h), no_grad, " + std::to_string(rounds) + " times",
              [=](LoopState& s, int) {
                const torch::NoGradGuard no_grad;
                for (int i = 0; i < rounds; ++i) s.h = model_of(s, which).forward(s.h).tanh();
              },
              true};
    case 2:
      return {"h = " + in_model(which) + "(h), detached",
              [=](LoopState& s, int) { s.h = model_of(s, which).forward(s.h.detach()).tanh().detach(); }, true};
    case 3:
      return {"h = sin(h + x / 2), or tanh if that is large", [](LoopState& s, int) {
                const at::Tensor next = s.h.detach() + s.x * 0.5;
                s.h = next.abs().max().item<float>() > 2 ? next.tanh() : next.sin();
              }};
    case 4:
      return {"h.mul_(0.75), under no_grad", [](LoopState& s, int) {
                const torch::NoGradGuard no_grad;
                if (!s.is_pending()) s.h.mul_(0.75);
              }};
    case 5:
      return {"h, as another layout of it", [](LoopState& s, int) { s.h = s.h.detach().t().contiguous().t(); }, true};
    case 6:
      return {"h and mean change places", [](LoopState& s, int) {
                s.h = s.h.detach();
                std::swap(s.h, s.mean);
              }};
    case 7:
      return {"h = its sorted values",
              [](LoopState& s, int) { s.h = std::get<0>(s.h.detach().sort(1, /*descending=*/true)); }, true};
    default:
      return {"h = half of it and half of y, detached",
              [](LoopState& s, int) {
                s.h = at::cat({s.h.detach().slice(0, 0, kLoopRows / 2), s.y.detach().slice(0, kLoopRows / 2)});
              },
              true};
  }
}

LoopStep cache_step(Dice& dice) {
  const int most = 1 + dice.roll(4);
  const std::string bound = std::to_string(most);
  switch (dice.roll(6)) {
    case 0:
      return {"a list of the last " + bound + " values of h",
              [=](LoopState& s, int) { remember(s, s.h.detach(), most); }};
    case 1:
      return {"a list of the last " + bound + " values of y, squared under no_grad", [=](LoopState& s, int) {
                const torch::NoGradGuard no_grad;
                remember(s, s.y.square(), most);
              }};
    case 2:
      return {"a list of the last " + bound + " mixtures of the last two", [=](LoopState& s, int) {
                const torch::NoGradGuard no_grad;
                const at::Tensor of = s.last.empty() ? s.x : s.last.back();
                remember(s, of * 0.5 + s.h.detach(), most);
              }};
    case 3:
      return {"the window moves by a row of h",
              [](LoopState& s, int) {
                s.window = at::cat({s.window.slice(0, 1), s.h.detach().slice(0, 0, 1)});
              },
              true};
    case 4:
      return {"a row of the window is written, under no_grad", [](LoopState& s, int round) {
                const torch::NoGradGuard no_grad;
                if (!s.is_pending()) s.window[round % kLoopRows].copy_(s.y[0]);
              }};
    default:
      return {"the window moves by a row, in place", [](LoopState& s, int) {
                const torch::NoGradGuard no_grad;
                if (s.is_pending()) return;
                s.window.slice(0, 0, kLoopRows - 1).copy_(s.window.slice(0, 1).clone());
                s.window[kLoopRows - 1].copy_(s.x[0]);
              }};
  }
}

LoopStep average_step(Dice& dice) {
  const int which = dice.roll(2);
  if (dice.roll(2) == 0) {
    return {"averages of the weights of " + in_model(which) + ", in place", [=](LoopState& s, int) {
              const torch::NoGradGuard no_grad;
              LoopModel& model = model_of(s, which);
              for (size_t i = 0; i < model.weights.size(); ++i) {
                model.averages[i].mul_(0.9).add_(model.weights[i], 0.1);
              }
            }};
  }
  return {"averages of the weights of " + in_model(which),
          [=](LoopState& s, int) {
            LoopModel& model = model_of(s, which);
            for (size_t i = 0; i < model.weights.size(); ++i) {
              model.averages[i] = at::lerp(model.averages[i], model.weights[i].detach(), 0.1);
            }
          },
          true};
}

}  // namespace

LoopStep carry_step(Dice& dice) {
  switch (dice.roll(12)) {
    case 0:
    case 1:
    case 2:
      return sum_step(dice);
    case 3:
    case 4:
    case 5:
    case 6:
      return state_step(dice);
    case 7:
    case 8:
    case 9:
      return cache_step(dice);
    default:
      return average_step(dice);
  }
}

LoopStep adversaries_step() {
  return {"the models learn against each other", [](LoopState& s, int) {
            s.settle();
            LoopModel &generator = s.models.front(), &critic = s.models.back();
            const at::Tensor fake = generator.forward(s.x);
            (critic.forward(fake.detach()).mean() - critic.forward(s.x).mean()).backward();
            if (&generator != &critic) critic.learn();
            (-critic.forward(fake).mean()).backward();
            generator.learn();
            ++s.backwards;
          }};
}

}  // namespace ac2::test
