#include "ac2/nn/internal/intercept/coder_layers.h"

#include <c10/util/Exception.h>
#include <torch/nn/modules/transformercoder.h>
#include <torch/nn/modules/transformerlayer.h>

#include <array>
#include <functional>
#include <typeinfo>
#include <utility>

namespace ac2::internal {
namespace {

using torch::nn::AnyValue;

template <size_t kCount>
std::array<at::Tensor, kCount> tensors(std::vector<AnyValue>& arguments, size_t required, const char* coder) {
  TORCH_CHECK(arguments.size() >= required && arguments.size() <= kCount, coder, "'s forward() takes ", required,
              " to ", kCount, " arguments, but was given ", arguments.size(), ".");
  std::array<at::Tensor, kCount> result;
  for (size_t i = 0; i < arguments.size(); ++i) result[i] = arguments[i].get<at::Tensor>();
  arguments.clear();
  return result;
}

// `forward(layer, x)` for each layer, then the norm.
template <class Layer, class Coder, class Forward>
AnyValue run(Coder& coder, at::Tensor x, std::map<size_t, Checkpointing>& settings, const Forward& forward) {
  for (size_t i = 0; i < coder.layers->size(); ++i) {
    Layer& layer = coder.layers->template at<Layer>(i);
    const auto found = settings.find(i);
    x = found == settings.end() ? forward(layer, x)
                                : found->second.run(
                                      layer.is_training(), [&] { return forward(layer, x); }, x);
  }
  return coder.norm.is_empty() ? AnyValue(std::move(x)) : coder.norm.any_forward(std::move(x));
}

}  // namespace

torch::nn::ModuleListImpl* coder_layers(torch::nn::Module& module) {
  // A class derived from one of them may have a forward of its own.
  if (typeid(module) == typeid(torch::nn::TransformerEncoderImpl)) {
    return dynamic_cast<torch::nn::TransformerEncoderImpl&>(module).layers.get();
  }
  if (typeid(module) == typeid(torch::nn::TransformerDecoderImpl)) {
    return dynamic_cast<torch::nn::TransformerDecoderImpl&>(module).layers.get();
  }
  return nullptr;
}

AnyValue forward_coder(torch::nn::Module& coder, std::vector<AnyValue>& arguments,
                       std::map<size_t, Checkpointing>& layers) {
  if (auto* encoder = dynamic_cast<torch::nn::TransformerEncoderImpl*>(&coder)) {
    auto [source, mask, padding] = tensors<3>(arguments, 1, "TransformerEncoder");
    return run<torch::nn::TransformerEncoderLayerImpl>(
        *encoder, std::move(source), layers, [&mask = mask, &padding = padding](auto& layer, const at::Tensor& x) {
          return layer.forward(x, mask, padding);
        });
  }
  auto& decoder = dynamic_cast<torch::nn::TransformerDecoderImpl&>(coder);
  auto all = tensors<6>(arguments, 2, "TransformerDecoder");
  return run<torch::nn::TransformerDecoderLayerImpl>(
      decoder, std::move(all[0]), layers,
      [&all](auto& layer, const at::Tensor& x) { return layer.forward(x, all[1], all[2], all[3], all[4], all[5]); });
}

}  // namespace ac2::internal
