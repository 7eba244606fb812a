// One process's share of a large model: some of its layers, and of these the heads, hidden channels and words that are
// this process's.
//
//   Stage stage(llama3_405b(), groups, {.device = at::kMeta});
//   at::Tensor output = stage.forward(input, targets, [](const auto& layer) {
//     ac2::PolicyScope scope("recompute_all");                            // what is to be around each layer
//     return layer();
//   });
//
// Where the mesh has a context axis, each process has the part of each sequence that its place on the axis says, and
// attention gathers keys and values of the whole sequence. Each process masks those after its own queries. The mask is
// a tensor of the stage's here; kernels for devices take the place of the first query instead.
//
// Nothing here depends on the device: on meta tensors it runs the ops that it runs on the CPU, without data.
// The parameters of a model depend on the seed and not on the mesh.
//
// Threads: one.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "examples/mesh/large_model.h"
#include "examples/mesh/mesh_groups.h"
#include "examples/mesh/tensor_parallel.h"

namespace gpt {

struct StageOptions {
  c10::Device device = at::kCPU;
  // Between the products of a layer each process of a tensor group has a part of the sequence.
  bool sequence = false;
  uint64_t seed = 0;
};

class Stage {
 public:
  // Throws c10::Error for a model that the mesh cannot share.
  Stage(const LargeModel& model, MeshGroups& groups, const StageOptions& options);
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  const LargeModel& model() const { return model_; }
  MeshGroups& groups() const { return groups_; }
  const StageOptions& options() const { return options_; }
  bool is_first() const { return groups_.place.pipeline == 0; }
  bool is_last() const { return groups_.place.pipeline + 1 == groups_.mesh.pipeline; }
  LayerRange layers() const { return range_; }

  using AroundLayer = std::function<at::Tensor(const std::function<at::Tensor()>& layer)>;
  // The tokens of a sequence that are here.
  int64_t own_tokens() const { return model_.context / groups_.context.size(); }
  int64_t first_token() const { return groups_.context.rank() * own_tokens(); }
  // `time` below is own_tokens(). From tokens [time, batch] in the first stage, else hidden states, to the mean loss in
  // the last one, else hidden states. Only the last one takes targets, which are [time, batch].
  at::Tensor forward(const at::Tensor& input, const at::Tensor& targets, const AroundLayer& around_layer) const;
  // Of what goes from stage to stage.
  std::vector<int64_t> hidden_sizes(int64_t batch) const;
  at::TensorOptions hidden_options() const { return at::TensorOptions().device(options_.device).dtype(model_.dtype); }

  // The parameters of the embedding, of each layer and of the loss, as far as they are here.
  const std::vector<std::vector<at::Tensor>>& units() const { return units_; }
  // Those whose gradients have to be summed over the tensor group, because each process sees a part of the sequence.
  std::vector<at::Tensor> seen_in_parts() const;

 private:
  class Maker;
  struct Layer {
    at::Tensor norm1, bias1, queries, keys, values, qkv, qkv_bias, projection, projection_bias;
    at::Tensor norm2, bias2, expand, expand_bias, gate, contract, contract_bias;
  };

  void make_layer(int64_t index);
  at::Tensor embed(const at::Tensor& tokens) const;
  at::Tensor through(const Layer& layer, const at::Tensor& x) const;
  at::Tensor loss(const at::Tensor& x, const at::Tensor& targets) const;
  at::Tensor norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) const;
  at::Tensor attend(const Layer& layer, const at::Tensor& x) const;
  at::Tensor feed_forward(const Layer& layer, const at::Tensor& x) const;
  at::Tensor rotated(const at::Tensor& heads) const;

  LargeModel model_;
  MeshGroups& groups_;
  StageOptions options_;
  TensorGroup tensor_, context_;
  LayerRange range_;
  std::vector<Layer> layers_;
  at::Tensor words_, positions_, norm_, bias_, head_;
  at::Tensor cosines_, sines_;  // of the rotary positions that are here
  at::Tensor mask_;             // [time, context], added to what attention compares; undefined for one part
  std::vector<std::vector<at::Tensor>> units_;
  std::vector<at::Tensor> replicated_;
};

}  // namespace gpt
