// The state of a random loop, carried from round to round: small models and how they learn, and tensors beside them.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "tests/fuzz/dice.h"
#include "tests/support/regions.h"

namespace ac2::test {

constexpr int64_t kLoopRows = 4;
constexpr int64_t kLoopWidth = 8;
// The most that comes from outside in a round.
constexpr int64_t kLargeBatchBytes = 64 << 10;

enum class LoopLayers { kProduct, kLinear, kBatchNorm, kDropout };
enum class LoopOptimizer { kSgd, kAdam, kRmsProp, kSgdByHand, kAdamByHand };
constexpr int kLoopLayers = 4;
constexpr int kLoopOptimizers = 5;

// The models of a loop.
struct LoopModelKind {
  LoopLayers layers = LoopLayers::kLinear;
  LoopOptimizer optimizer = LoopOptimizer::kSgd;

  static LoopModelKind draw(Dice& dice);
  std::string words() const;
};

class LoopModel {
 public:
  explicit LoopModel(const LoopModelKind& kind);

  // From rows of kLoopWidth to as many.
  at::Tensor forward(const at::Tensor& x);
  // One step for those weights that have a gradient.
  void learn();

  Tensors weights;
  Tensors averages;  // of the weights, which a loop may keep
  Tensors buffers() const { return layers_->buffers(); }

 private:
  friend struct LoopState;
  void learn_by_hand(size_t i, const at::Tensor& gradient);

  LoopModelKind kind_;
  torch::nn::Sequential layers_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;  // null where a step is written by hand
  Tensors first_moments_, second_moments_;              // of one by hand
};

struct LoopState {
  // Draws from the default generator.
  explicit LoopState(const std::vector<LoopModelKind>& kinds);

  std::vector<LoopModel> models;
  at::Tensor data;       // which batches are cut from
  at::Tensor x;          // the batch
  at::Tensor y, loss;    // what forward has made of it; no loss if there is nothing to differentiate
  at::Tensor last_loss;  // without its graph
  at::Tensor h, total, mean, noise, window;  // carried from round to round
  std::deque<at::Tensor> last;               // some of the last results
  std::deque<at::Tensor> kept;               // some of the last losses, with their graphs
  std::vector<float> losses;                 // of all rounds
  bool graph_outlived_backward = false;      // or a part of it
  int64_t backwards_before_period = 0;
  int64_t backwards = 0;  // those that kept no graph

  // Whether there are graphs that a backward may come to.
  bool is_pending() const;
  // Those graphs are dropped, and what they computed stays.
  void settle();
  // The outcome: weights, their gradients, and all that is carried.
  Tensors carried() const;
};

}  // namespace ac2::test
