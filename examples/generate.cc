#include "examples/generate.h"

#include <algorithm>
#include <random>
#include <string_view>

namespace gpt {
namespace {

// The length of the UTF-8 character that `text` begins with; 0 if it begins with none. Overlong forms pass.
size_t utf8_length(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const size_t length = lead < 0x80 ? 1 : lead < 0xc0 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf8 ? 4 : 0;
  if (length > text.size()) return 0;
  const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; };
  return std::ranges::all_of(text.substr(0, length).substr(std::min<size_t>(length, 1)), continues) ? length : 0;
}

}  // namespace

std::string generate(Gpt model, const TextData& text, const std::string& prompt, int64_t length, double temperature,
                     uint64_t seed) {
  TORCH_CHECK(!prompt.empty(), "The prompt is empty; generating needs at least one character to go on from.");
  const torch::NoGradGuard no_grad;
  model->eval();
  std::mt19937_64 random(seed);
  std::string result = prompt;
  const c10::Device device = model->parameters().front().device();
  const auto context = static_cast<size_t>(model->options().context);
  for (int64_t i = 0; i < length; ++i) {
    const std::string_view seen = std::string_view(result).substr(result.size() - std::min(result.size(), context));
    const at::Tensor logits = model->forward(text.encode(seen).to(device), std::nullopt).select(1, -1).flatten();
    const at::Tensor sums = at::softmax(logits.to(at::kCPU, at::kDouble) / temperature, 0).cumsum(0);
    const double* const begin = sums.const_data_ptr<double>();
    const double* const last = begin + sums.numel() - 1;
    const double drawn = static_cast<double>(random() >> 11) * 0x1p-53;
    // The last sum can lie below 1 by rounding: it is the end of the search, not a candidate to be passed.
    result += text.decode(std::upper_bound(begin, last, drawn) - begin);
  }
  return result;
}

std::string printable(std::string text) {
  for (size_t i = 0; i < text.size();) {
    const size_t length = utf8_length(std::string_view(text).substr(i));
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool control = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f;
    if (length == 0 || control) text[i] = '?';
    i += std::max<size_t>(length, 1);
  }
  return text;
}

}  // namespace gpt
