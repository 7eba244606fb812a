// Text drawn from a trained model.
#pragma once

#include <cstdint>
#include <string>

#include "examples/gpt_model.h"
#include "examples/text_data.h"

namespace gpt {

// `prompt` and `length` bytes drawn after it. Low temperatures prefer what is likely; 1 draws as the model predicts.
// Puts the model into eval mode. Throws c10::Error if the prompt is empty or has bytes that `text` has not.
std::string generate(Gpt model, const TextData& text, const std::string& prompt, int64_t length, double temperature,
                     uint64_t seed);

// `text` for a terminal: control characters other than newline and tab, and bytes that are no UTF-8, become '?'. A
// model that works byte by byte may write half a character.
std::string printable(std::string text);

}  // namespace gpt
