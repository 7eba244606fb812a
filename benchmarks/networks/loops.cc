#include "benchmarks/networks/loops.h"

#include <torch/torch.h>

#include <deque>
#include <memory>
#include <utility>
#include <vector>

namespace benchmarks {

namespace {

constexpr int64_t kBatch = 16;
constexpr int64_t kChannels = 64;

using Tensors = std::vector<at::Tensor>;

torch::nn::Sequential plain_model() {
  torch::nn::Sequential model;
  for (int i = 0; i < 4; ++i) {
    model->push_back(torch::nn::Linear(kChannels, kChannels));
    model->push_back(torch::nn::GELU());
  }
  return model;
}

torch::nn::Sequential normalized_model() {
  torch::nn::Sequential model;
  for (int i = 0; i < 4; ++i) {
    model->push_back(torch::nn::Linear(kChannels, kChannels));
    model->push_back(torch::nn::BatchNorm1d(kChannels));
    model->push_back(torch::nn::GELU());
    model->push_back(torch::nn::Dropout(0.1));
  }
  return model;
}

at::Tensor batch() {
  return at::randn({kBatch, kChannels});
}

// As a data loader hands it out: no op has made it.
at::Tensor loaded_batch() {
  auto numbers = std::make_unique<std::vector<float>>(kBatch * kChannels, 0.5F);
  float* data = numbers->data();
  return at::from_blob(data, {kBatch, kChannels}, [owned = numbers.release()](void*) { delete owned; });
}

at::Tensor loss_of(torch::nn::Sequential& model) {
  return model->forward(batch()).square().mean();
}

// A loop over `State`, which is made after seeding.
template <class State>
Loop loop(std::string name, bool has_backward, void (*round)(State&), Tensors (*carried)(State&)) {
  return {std::move(name), has_backward, [round, carried] {
            torch::manual_seed(5);
            auto state = std::make_shared<State>();
            return Rounds{[=] { round(*state); }, [=] { return carried(*state); }};
          }};
}

struct Training {
  torch::nn::Sequential model = plain_model();
  at::Tensor total = at::zeros({});
  Tensors averages;

  Training() {
    for (const at::Tensor& p : model->parameters()) averages.push_back(p.detach().clone());
  }
  at::Tensor forward_and_backward() {
    model->zero_grad();
    at::Tensor loss = loss_of(model);
    loss.backward();
    return loss;
  }
};

Tensors carried(Training& t) {
  Tensors all = t.averages;
  all.push_back(t.total);
  for (const at::Tensor& p : t.model->parameters()) {
    all.push_back(p);
    all.push_back(p.grad());
  }
  return all;
}

struct Adam {
  torch::nn::Sequential model = normalized_model();
  torch::optim::Adam optimizer{model->parameters()};
};
struct RmsProp {
  torch::nn::Sequential model = normalized_model();
  torch::optim::RMSprop optimizer{model->parameters(), torch::optim::RMSpropOptions().momentum(0.9)};
};

template <class State>
void optimize(State& s) {
  s.optimizer.zero_grad();
  loss_of(s.model).backward();
  s.optimizer.step();
}

template <class State>
Tensors parameters_and_buffers(State& s) {
  Tensors all = s.model->parameters();
  for (const at::Tensor& b : s.model->buffers()) all.push_back(b);
  return all;
}

struct Rollout {
  torch::nn::Sequential model = plain_model();
  at::Tensor h = batch();
  at::Tensor noise = at::zeros({4});
  at::Tensor mean = at::zeros({kBatch, kChannels});
  at::Tensor cache = at::zeros({32, kChannels});
  std::deque<at::Tensor> last;
};

Tensors carried(Rollout& r) {
  Tensors all = {r.h, r.noise, r.mean, r.cache};
  all.insert(all.end(), r.last.begin(), r.last.end());
  return all;
}

struct Recurrent {
  torch::nn::LSTM lstm{kChannels, kChannels};
  at::Tensor h = at::zeros({1, kBatch, kChannels}), c = at::zeros({1, kBatch, kChannels});
};

struct Adversaries {
  torch::nn::Sequential generator = plain_model(), critic = plain_model();
  torch::optim::SGD generator_step{generator->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9)};
  torch::optim::SGD critic_step{critic->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9)};
};

}  // namespace

std::vector<Loop> loops() {
  return {
      loop<Training>(
          "forward, backward", true, [](Training& t) { t.forward_and_backward(); }, carried),
      loop<Training>(
          "a sum of losses", true, [](Training& t) { t.total = t.total + t.forward_and_backward().detach(); }, carried),
      loop<Training>(
          "an average of the weights", true,
          [](Training& t) {
            t.forward_and_backward();
            const torch::NoGradGuard no_grad;
            for (size_t i = 0; i < t.averages.size(); ++i) {
              t.averages[i].mul_(0.99).add_(t.model->parameters()[i], 0.01);
            }
          },
          carried),
      loop<Training>(
          "a step of SGD by hand", true,
          [](Training& t) {
            t.forward_and_backward();
            const torch::NoGradGuard no_grad;
            for (at::Tensor& p : t.model->parameters()) p.sub_(0.01 * p.grad());
          },
          carried),
      loop<Adam>("Adam, with BatchNorm and dropout", true, optimize<Adam>, parameters_and_buffers<Adam>),
      loop<RmsProp>("RMSprop, with BatchNorm and dropout", true, optimize<RmsProp>, parameters_and_buffers<RmsProp>),
      loop<Recurrent>(
          "an LSTM's state, detached", true,
          [](Recurrent& r) {
            r.lstm->zero_grad();
            const auto [output, state] = r.lstm->forward(at::randn({4, kBatch, kChannels}), std::tuple(r.h, r.c));
            output.square().mean().backward();
            r.h = std::get<0>(state).detach();
            r.c = std::get<1>(state).detach();
          },
          [](Recurrent& r) {
            return Tensors{r.h, r.c};
          }),
      loop<Adversaries>(
          "a generator and its critic", true,
          [](Adversaries& a) {
            const at::Tensor fake = a.generator->forward(batch());
            a.critic_step.zero_grad();
            (a.critic->forward(fake.detach()).mean() - a.critic->forward(batch()).mean()).backward();
            a.critic_step.step();
            a.generator_step.zero_grad();
            (-a.critic->forward(fake).mean()).backward();
            a.generator_step.step();
          },
          [](Adversaries& a) {
            Tensors all = a.generator->parameters();
            for (const at::Tensor& p : a.critic->parameters()) all.push_back(p);
            return all;
          }),
      loop<Rollout>(
          "h = model(h), no_grad", false,
          [](Rollout& r) {
            const torch::NoGradGuard no_grad;
            r.h = r.model->forward(r.h);
          },
          carried),
      loop<Rollout>(
          "h = model(h), detached", false, [](Rollout& r) { r.h = r.model->forward(r.h).detach(); }, carried),
      loop<Rollout>(
          "noise = 0.9 noise + randn, no_grad", false,
          [](Rollout& r) {
            const torch::NoGradGuard no_grad;
            r.noise = r.noise * 0.9 + at::randn({4});
          },
          carried),
      loop<Rollout>(
          "a mean of batches", false, [](Rollout& r) { r.mean = r.mean * 0.9 + loaded_batch(); }, carried),
      loop<Rollout>(
          "a window of the last results, no_grad", false,
          [](Rollout& r) {
            const torch::NoGradGuard no_grad;
            r.h = r.model->forward(r.h);
            r.cache = at::cat({r.cache.slice(0, 1), r.h.slice(0, 0, 1)});
          },
          carried),
      loop<Rollout>(
          "a list of the last results, no_grad", false,
          [](Rollout& r) {
            const torch::NoGradGuard no_grad;
            r.h = r.model->forward(r.h);
            r.last.push_back(r.h);
            if (r.last.size() > 8) r.last.pop_front();
          },
          carried),
      loop<Rollout>(
          "a sum of losses, no backward", false, [](Rollout& r) { r.noise = r.noise + loss_of(r.model).detach(); },
          carried),
  };
}

}  // namespace benchmarks
