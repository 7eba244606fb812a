#include "examples/mesh/large_model.h"

#include <c10/util/Exception.h>

#include <utility>

namespace gpt {

LargeModel gpt3_175b() {
  return {.name = "GPT-3 175B",
          .layers = 96,
          .dim = 12288,
          .heads = 96,
          .key_heads = 96,
          .hidden = int64_t{4} * 12288,
          .vocabulary = 51200,
          .context = 2048,
          .dtype = at::kHalf,
          .llama = false};
}

LargeModel llama3_405b() {
  return {.name = "Llama-3 405B",
          .layers = 126,
          .dim = 16384,
          .heads = 128,
          .key_heads = 8,
          .hidden = 53248,
          .vocabulary = 128256,
          .context = 8192,
          .dtype = at::kBFloat16,
          .llama = true};
}

LargeModel large_model_by_name(const std::string& name) {
  if (name == "gpt3") return gpt3_175b();
  TORCH_CHECK(name == "llama3", "Unknown model \"", name, "\"; expected gpt3 or llama3.");
  return llama3_405b();
}

void check_model(const LargeModel& model, int64_t tensor, int64_t context) {
  for (const auto& [what, number] :
       {std::pair("layers", model.layers), std::pair("dim", model.dim), std::pair("heads", model.heads),
        std::pair("key_heads", model.key_heads), std::pair("hidden", model.hidden),
        std::pair("vocabulary", model.vocabulary), std::pair("context", model.context)}) {
    TORCH_CHECK(number > 0, what, " is ", number, "; it must be at least 1.");
  }
  TORCH_CHECK(model.dim % model.heads == 0, "dim ", model.dim, " is not divisible by heads ", model.heads, ".");
  TORCH_CHECK(model.heads % model.key_heads == 0, "heads ", model.heads, " is not divisible by key_heads ",
              model.key_heads, ".");
  TORCH_CHECK(!model.llama || model.dim / model.heads % 2 == 0, "A head of ", model.dim / model.heads,
              " channels cannot be rotated; their number must be even.");
  for (const auto& [what, number] : {std::pair("key_heads", model.key_heads), std::pair("hidden", model.hidden),
                                     std::pair("vocabulary", model.vocabulary), std::pair("context", model.context)}) {
    TORCH_CHECK(number % tensor == 0, "The tensor axis has ", tensor, " devices, which cannot share ", what, " ",
                number, ".");
  }
  TORCH_CHECK(model.context % (tensor * context) == 0, "The tensor and the context axis have ", tensor, " x ", context,
              " devices, which cannot share context ", model.context, ".");
}

}  // namespace gpt
