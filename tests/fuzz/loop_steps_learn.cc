#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ac2/scope.h"
#include "tests/fuzz/loop_steps.h"

namespace ac2::test {

namespace {

// As a data loader hands it out: no op has made it. Its storage has `bytes`.
at::Tensor loaded_batch(int round, int64_t bytes) {
  auto numbers = std::make_unique<std::vector<float>>(static_cast<size_t>(bytes) / sizeof(float),
                                                      0.25F * static_cast<float>(round % 7));
  float* data = numbers->data();
  const int64_t rows = bytes / kLoopWidth / static_cast<int64_t>(sizeof(float));
  return at::from_blob(data, {rows, kLoopWidth}, [owned = numbers.release()](void*) { delete owned; })
      .slice(0, 0, kLoopRows);
}

LoopModel& model_of(LoopState& s, int which) {
  return s.models[static_cast<size_t>(which) % s.models.size()];
}

// Whether there is something to differentiate. If `whole`, the loss is of all that has a graph; else some of that may
// have no part in it, and outlives the backward.
bool has_loss(LoopState& s, bool whole) {
  if (!s.loss.defined() && s.y.requires_grad()) s.loss = s.y.square().mean();
  if (!s.loss.defined()) return false;
  for (const at::Tensor& t : {s.y, s.h}) {
    if (!t.requires_grad()) continue;
    if (whole) {
      s.loss = s.loss + t.mean() * 0.1;
    } else {
      s.graph_outlived_backward = true;
    }
  }
  return true;
}

// A backward has been through the graphs. Up to `kept` losses stay as they are.
void end_graphs(LoopState& s, int kept) {
  s.last_loss = s.loss.detach();
  s.losses.push_back(*s.loss.const_data_ptr<float>());
  if (kept > 0) s.kept.push_back(s.loss);
  while (static_cast<int>(s.kept.size()) > kept) s.kept.pop_front();
  s.settle();
}

void give_gradients(const Tensors& weights, const Tensors& gradients) {
  for (size_t i = 0; i < weights.size(); ++i) weights[i].mutable_grad() = gradients[i];
}

std::string in_model(int which) {
  return "model " + std::to_string(which);
}

}  // namespace

LoopStep batch_step(Dice& dice) {
  switch (dice.roll(4)) {
    case 0: {
      const bool large = dice.roll(2) == 0;
      return {large ? "x = a few rows of a large batch from outside" : "x = a batch from outside",
              [=](LoopState& s, int round) { s.y = s.x = loaded_batch(round, large ? kLargeBatchBytes : 4096); }};
    }
    case 1:
      return {"x = rows of the data", [](LoopState& s, int round) {
                s.y = s.x = s.data.slice(0, round % 4 * kLoopRows, (round % 4 + 1) * kLoopRows);
              }};
    case 2:
      return {"x = shuffled rows of the data",
              [](LoopState& s, int) {
                s.y = s.x = s.data.index_select(0, at::randperm(s.data.size(0)).slice(0, 0, kLoopRows));
              },
              true};
    default:
      return {"x = randn", [](LoopState& s, int) { s.y = s.x = at::randn({kLoopRows, kLoopWidth}); }, true};
  }
}

LoopStep forward_step(Dice& dice) {
  const int which = dice.roll(2);
  switch (dice.roll(13)) {
    case 0:
      return {"y = y * tanh(h)", [](LoopState& s, int) { s.y = s.y * s.h.tanh(); }, true};
    case 1:
      return {"y = y + the window's mean", [](LoopState& s, int) { s.y = s.y + s.window.mean(0); }, true};
    case 2:
      return {"y = y * the last results' mean",
              [](LoopState& s, int) {
                if (!s.last.empty()) s.y = s.y * at::stack(Tensors(s.last.begin(), s.last.end())).mean(0);
              },
              true};
    case 3:
      return {"y = y * (1 + tanh(total))", [](LoopState& s, int) { s.y = s.y * (1 + s.total.tanh()); }, true};
    case 4:
      return {"y = y * a mask made under no_grad",
              [](LoopState& s, int) {
                at::Tensor mask;
                {
                  const torch::NoGradGuard no_grad;
                  mask = at::ones_like(s.x).tril().mul(0.5);
                }
                s.y = s.y * mask;
              },
              true};
    case 5:
      return {"y = dropout(y)", [](LoopState& s, int) { s.y = at::dropout(s.y, 0.25, true); }, true};
    case 6:
      return {"h = tanh(y), with its graph; y = h * mean",
              [](LoopState& s, int) {
                s.h = s.y.tanh();
                s.y = s.h * (s.mean + 1);
              },
              true};
    case 7:
      return {"y = " + in_model(which) + "(y + h)",
              [=](LoopState& s, int) { s.y = model_of(s, which).forward(s.y + s.h); }, true};
    case 8:
      return {"y, of a tag", [=](LoopState& s, int) {
                if (!is_checkpoint_enabled()) return;
                tag_with_policy(s.y, which == 0 ? CheckpointPolicy::PREFER_SAVE : CheckpointPolicy::PREFER_RECOMPUTE);
              }};
    case 9:
      return {"h = " + in_model(which) + "(h), with its graph; y = y + h",
              [=](LoopState& s, int) {
                s.h = model_of(s, which).forward(s.h).tanh();
                s.y = s.y + s.h;
              },
              true};
    default:
      return {"y = " + in_model(which) + "(y)", [=](LoopState& s, int) { s.y = model_of(s, which).forward(s.y); },
              true};
  }
}

LoopStep loss_step(Dice& dice) {
  const bool adds = dice.roll(2) == 0;
  const bool keeps_y = dice.roll(2) == 0;
  return {adds ? "loss = loss + mean(y^2)" : "loss = mean(y^2)",
          [=](LoopState& s, int) {
            if (!s.y.requires_grad()) return;
            const at::Tensor term = s.y.square().mean();
            s.loss = adds && s.loss.defined() ? s.loss + term : term;
            if (!keeps_y) s.y = s.y.detach();
          },
          true};
}

LoopStep backward_step(Dice& dice) {
  const int kept = dice.roll(3);
  const int which = dice.roll(2);
  const bool whole = dice.roll(4) != 0;
  const std::string keeping = std::string(whole ? " of all that has a graph" : "") +
                              (kept > 0 ? "; the last " + std::to_string(kept) + " losses are kept" : "");
  switch (dice.roll(8)) {
    case 0:
      return {"the loss's backward twice, the first with retain_graph" + keeping, [=](LoopState& s, int) {
                if (!has_loss(s, whole)) return;
                s.loss.backward({}, /*retain_graph=*/true);
                s.loss.backward();
                ++s.backwards;
                end_graphs(s, kept);
              }};
    case 1:
      return {"backward, and one for each of two batches more, in " + in_model(which), [=](LoopState& s, int) {
                if (!has_loss(s, whole)) return;
                s.loss.backward();
                end_graphs(s, 0);
                for (int i = 0; i < 2; ++i) {
                  (model_of(s, which).forward(at::randn({kLoopRows, kLoopWidth})).mean() / 2).backward();
                }
                ++s.backwards;
              }};
    case 2:
      return {"backward of the loss and the square of " + in_model(which) + "'s slope" + keeping,
              [=](LoopState& s, int) {
                if (!has_loss(s, whole)) return;
                const at::Tensor input = s.x.detach().clone().requires_grad_(true);
                at::Tensor out = model_of(s, which).forward(input).square().sum();
                const at::Tensor slope = torch::autograd::grad({out}, {input}, {}, std::nullopt,
                                                               /*create_graph=*/true)[0];
                s.loss = s.loss + slope.square().mean();
                // The derivative does not go through the last ops of what it is of.
                if (whole) {
                  out.reset();
                } else {
                  s.graph_outlived_backward = true;
                }
                s.loss.backward();
                ++s.backwards;
                end_graphs(s, kept);
              }};
    case 3:
      return {"autograd::grad of the loss by all weights" + keeping, [=](LoopState& s, int) {
                if (!has_loss(s, whole)) return;
                Tensors weights;
                for (const LoopModel& model : s.models) {
                  weights.insert(weights.end(), model.weights.begin(), model.weights.end());
                }
                give_gradients(weights, torch::autograd::grad({s.loss}, weights, {}, std::nullopt, false, true));
                ++s.backwards;
                end_graphs(s, kept);
              }};
    case 4:
      return {"two steps on weights with their graph, as meta-learning takes; backward" + keeping,
              [=](LoopState& s, int) {
                if (!has_loss(s, whole)) return;
                at::Tensor w = model_of(s, which).weights[0];
                for (int i = 0; i < 2; ++i) {
                  const at::Tensor inner = s.x.mm(w).tanh().square().sum();
                  w = w - 0.01 * torch::autograd::grad({inner}, {w}, {}, std::nullopt, /*create_graph=*/true)[0];
                }
                s.loss = s.loss + s.x.mm(w).tanh().mean();
                s.loss.backward();
                ++s.backwards;
                end_graphs(s, kept);
              }};
    default:
      return {"backward" + keeping, [=](LoopState& s, int) {
                if (!has_loss(s, whole)) return;
                s.loss.backward();
                ++s.backwards;
                end_graphs(s, kept);
              }};
  }
}

LoopStep keeping_backward_step(Dice& dice) {
  const int kept = dice.roll(3);
  const int which = dice.roll(2);
  const std::string keeping = kept > 0 ? "; the last " + std::to_string(kept) + " losses are kept" : "";
  if (dice.roll(2) == 0) {
    return {"backward with retain_graph" + keeping, [=](LoopState& s, int) {
              if (!has_loss(s, /*whole=*/false)) return;
              s.graph_outlived_backward = true;
              s.loss.backward({}, /*retain_graph=*/true);
              end_graphs(s, kept);
            }};
  }
  return {"autograd::grad with create_graph by the weights of " + in_model(which) + ", summed up" + keeping,
          [=](LoopState& s, int) {
            if (!has_loss(s, /*whole=*/false)) return;
            s.graph_outlived_backward = true;
            const Tensors& weights = model_of(s, which).weights;
            const Tensors gradients = torch::autograd::grad({s.loss}, weights, {}, std::nullopt, true, true);
            for (const at::Tensor& g : gradients) {
              if (g.defined()) s.total = s.total * 0.9 + g.detach().abs().mean();
            }
            end_graphs(s, kept);
          }};
}

LoopStep optimizer_step(Dice& dice) {
  const int zeros = dice.roll(3);
  const bool clips = dice.roll(4) == 0;
  return {std::string(clips ? "gradients are clipped; " : "") + "all models learn; gradients are " +
              (zeros == 0   ? "dropped"
               : zeros == 1 ? "set to 0"
                            : "halved"),
          [=](LoopState& s, int) {
            // The tensor that is written here must not be wanted by a backward.
            s.settle();
            for (LoopModel& model : s.models) {
              if (clips) torch::nn::utils::clip_grad_norm_(model.weights, 1.0);
              model.learn();
              for (at::Tensor& w : model.weights) {
                if (!w.grad().defined()) continue;
                if (zeros == 0) w.mutable_grad().reset();
                if (zeros == 1) w.mutable_grad().zero_();
                if (zeros == 2) w.mutable_grad().mul_(0.5);
              }
            }
          }};
}

}  // namespace ac2::test
