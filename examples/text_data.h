// Text as tokens, one per byte that occurs, and random batches of it.
//
//   gpt::TextData text = gpt::TextData::load("book.txt");
//   gpt::Batch batch = gpt::BatchSampler(text, /*batch=*/16, /*context=*/128, /*seed=*/1).next();
//
// Threads: TextData is immutable; a BatchSampler belongs to one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace gpt {

// A directory's files are read in the order of their paths and stop at this many bytes: training on an unexpectedly
// large directory should not fill the memory.
inline constexpr int64_t kMaxDirectoryBytes = 16 << 20;

class TextData {
 public:
  // A file, or a directory whose .h files are read, subdirectories included. Throws c10::Error if nothing can be read.
  static TextData load(const std::string& path);
  explicit TextData(std::string text);

  int64_t size() const { return static_cast<int64_t>(text_.size()); }
  // How many different bytes there are. The tokens are 0 to vocabulary() - 1, in the order of the bytes.
  int64_t vocabulary() const { return static_cast<int64_t>(bytes_.size()); }
  int64_t token(size_t position) const { return tokens_[static_cast<uint8_t>(text_[position])]; }
  // int64 [1, text.size()]. Throws c10::Error if a byte of `text` is not in the vocabulary.
  at::Tensor encode(std::string_view text) const;
  char decode(int64_t token) const { return static_cast<char>(bytes_.at(static_cast<size_t>(token))); }
  std::string_view text() const { return text_; }

 private:
  std::string text_;
  std::vector<uint8_t> bytes_;       // by token
  std::array<int64_t, 256> tokens_;  // by byte; -1 if it does not occur
};

// tokens[i] and the tokens that follow each of them, both int64 [batch, context].
struct Batch {
  at::Tensor tokens;
  at::Tensor next_tokens;
};

// Excerpts at random positions. The same seed gives the same batches on every machine.
class BatchSampler {
 public:
  // `text` must outlive the sampler. Throws c10::Error if it is shorter than context + 1.
  BatchSampler(const TextData& text, int64_t batch, int64_t context, uint64_t seed);
  Batch next();

 private:
  const TextData& text_;
  int64_t batch_;
  int64_t context_;
  std::mt19937_64 random_;
};

}  // namespace gpt
