// The sizes of large language models.
//
//   const LargeModel model = llama3_405b();
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>

namespace gpt {

struct LargeModel {
  std::string name;
  int64_t layers = 0;
  int64_t dim = 0;
  int64_t heads = 0;
  int64_t key_heads = 0;   // those that keys and values have
  int64_t hidden = 0;      // channels between the two products of a layer
  int64_t vocabulary = 0;  // a multiple of the tensor axis
  int64_t context = 0;
  at::ScalarType dtype = at::kBFloat16;
  // Norms without a mean, rotary positions, gated hidden layers, no biases; else as GPT-2.
  bool llama = false;
};

// Brown et al., "Language Models are Few-Shot Learners" (arXiv 2005.14165), table 2.1. The vocabulary is padded as
// Megatron-LM does it for 8 devices. The output projection has a weight of its own.
LargeModel gpt3_175b();
// "The Llama 3 Herd of Models" (arXiv 2407.21783), table 3.
LargeModel llama3_405b();
// "gpt3" or "llama3". Throws c10::Error that lists them if it is neither.
LargeModel large_model_by_name(const std::string& name);

// Throws c10::Error for sizes that make no model, or that `tensor` devices, and for the sequence as many times
// `context`, cannot share.
void check_model(const LargeModel& model, int64_t tensor, int64_t context = 1);

}  // namespace gpt
