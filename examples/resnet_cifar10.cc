#include "examples/resnet_cifar10.h"

#include <c10/util/tempfile.h>
#include <torch/torch.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "ac2/ac2.h"
#include "examples/cifar10.h"
#include "examples/resnet.h"
#include "policies/policies.h"

namespace example {
namespace {

constexpr int64_t kMadePictures = 500;

Cifar10 load(const std::string& path) {
  if (!path.empty()) return Cifar10::load(path);
  const std::optional<c10::TempFile> made = c10::try_make_tempfile("ac2_cifar10_");
  TORCH_CHECK(made, "Cannot make a temporary file: ", std::strerror(errno),
              ". Set TMPDIR to a directory that can be written.");
  write_striped_cifar10(made->name, kMadePictures, /*seed=*/1);
  return Cifar10::load(made->name);
}

// ---------------------------------------------------------------------------------------------------------------------
// A program's calls and their forms here: layer1.recompute() is {"layer1"}; relu.recompute() is
// recompute_ops({"aten::relu"}).
void recompute(ResNet& model, const std::vector<std::string>& names, const std::vector<std::string>& ops) {
  if (names.empty()) return;
  ac2::CheckpointSpec spec;
  spec.modules.assign(names.begin(), names.end());
  // The next block holds it as its input anyway.
  spec.options.keep_output = true;
  if (!ops.empty()) spec.policy = ac2::policies::recompute_ops(ops);
  ac2::apply_checkpointing(model, spec);
}
// ---------------------------------------------------------------------------------------------------------------------

std::string join(const std::vector<std::string>& parts) {
  std::string joined;
  for (const std::string& part : parts) joined += (joined.empty() ? "" : ", ") + part;
  return joined;
}

Variant make(const ResnetCifar10Options& options, const std::shared_ptr<const Cifar10>& data,
             const std::vector<std::string>& names, const std::vector<std::string>& ops) {
  torch::manual_seed(0);
  ResNet model(options.small ? ResNetOptions{.blocks = {1, 2, 1, 1}, .width = 4} : ResNetOptions{});
  recompute(model, names, ops);
  auto optimizer = std::make_shared<torch::optim::SGD>(
      model->parameters(), torch::optim::SGDOptions(options.learning_rate).momentum(0.9).weight_decay(1e-4));
  auto step = std::make_shared<uint64_t>(0);
  std::string name = names.empty() ? "none" : join(names);
  if (!ops.empty()) name += ": " + join(ops);
  return {.name = std::move(name),
          .model = model.ptr(),
          .loss =
              [=]() mutable {
                const Pictures batch = data->batch(options.batch, (*step)++);
                return torch::nn::functional::cross_entropy(model->forward(batch.pixels), batch.labels);
              },
          .update = [optimizer] { optimizer->step(); }};
}

}  // namespace

std::vector<Variant> resnet_cifar10(const ResnetCifar10Options& options) {
  TORCH_CHECK(options.batch >= 1, "batch is ", options.batch, "; it must be 1 or more.");
  TORCH_CHECK(options.learning_rate > 0, "lr is ", options.learning_rate, "; it must be above 0.");
  TORCH_CHECK(options.ops.empty() || !options.recompute.empty(), "ops are given (", join(options.ops),
              "), but not the layers they are in. Add --recompute=layer*.");
  const auto data = std::make_shared<const Cifar10>(load(options.data));
  const auto variant = [&](const std::vector<std::string>& names, const std::vector<std::string>& ops) {
    return make(options, data, names, ops);
  };
  if (!options.recompute.empty()) return {variant({}, {}), variant(options.recompute, options.ops)};
  return {variant({}, {}), variant({"layer1", "layer2"}, {}), variant({"layer*"}, {}), variant({"layer*.*"}, {}),
          variant({"layer*.*"}, {"aten::relu", "aten::native_batch_norm"})};
}

}  // namespace example
