// A text of a few kilobytes, for tests that train the GPT of examples/.
#pragma once

#include <string>
#include <utility>

#include "examples/text_data.h"

namespace ac2::test {

inline gpt::TextData some_text() {
  std::string text;
  for (int i = 0; i < 200; ++i) text += "line " + std::to_string(i * 7) + "\n";
  return gpt::TextData(std::move(text));
}

}  // namespace ac2::test
