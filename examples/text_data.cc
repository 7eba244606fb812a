#include "examples/text_data.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

namespace gpt {
namespace fs = std::filesystem;

namespace {

std::string read_file(const fs::path& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  if (file) content << file.rdbuf();
  // Inserting nothing, as from an empty file, fails too, but without an error of the system.
  TORCH_CHECK(file && !(content.fail() && errno != 0), "Cannot read the text file \"", path.string(),
              "\": ", std::strerror(errno), ". Pass a readable file or directory as --text.");
  return std::move(content).str();
}

std::string read_directory(const fs::path& directory) {
  std::vector<fs::path> headers;
  for (const auto& entry : fs::recursive_directory_iterator(directory, fs::directory_options::skip_permission_denied)) {
    if (entry.is_regular_file() && entry.path().extension() == ".h") headers.push_back(entry.path());
  }
  TORCH_CHECK(!headers.empty(), "The directory \"", directory.string(),
              "\" has no .h files. Pass a text file, or a directory with C++ headers, as --text.");
  // The order of a directory listing differs from machine to machine.
  std::sort(headers.begin(), headers.end());
  std::string text;
  for (const auto& header : headers) {
    text += read_file(header);
    if (static_cast<int64_t>(text.size()) >= kMaxDirectoryBytes) break;
  }
  return text;
}

}  // namespace

TextData TextData::load(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  TORCH_CHECK(fs::exists(status), "The text \"", path, "\" does not exist (seen from the directory \"",
              fs::current_path(error).string(), "\"). Pass a file or directory that exists as --text.");
  std::string text = fs::is_directory(status) ? read_directory(path) : read_file(path);
  TORCH_CHECK(!text.empty(), "The text \"", path,
              "\" is empty. Pass a file with some text to train on, 100 kB or more, as --text.");
  return TextData(std::move(text));
}

TextData::TextData(std::string text) : text_(std::move(text)) {
  TORCH_CHECK(!text_.empty(), "There is no text to train on: it is empty.");
  tokens_.fill(-1);
  for (const char c : text_) tokens_[static_cast<uint8_t>(c)] = 0;
  for (size_t byte = 0; byte < tokens_.size(); ++byte) {
    if (tokens_[byte] < 0) continue;
    tokens_[byte] = static_cast<int64_t>(bytes_.size());
    bytes_.push_back(static_cast<uint8_t>(byte));
  }
}

at::Tensor TextData::encode(std::string_view text) const {
  at::Tensor tokens = at::empty({1, static_cast<int64_t>(text.size())}, at::kLong);
  int64_t* out = tokens.mutable_data_ptr<int64_t>();
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    TORCH_CHECK(tokens_[byte] >= 0, "There is no token for byte ", static_cast<int>(byte), " of \"", text,
                "\": it does not occur in the text to train on. Use characters that do.");
    *out++ = tokens_[byte];
  }
  return tokens;
}

BatchSampler::BatchSampler(const TextData& text, int64_t batch, int64_t context, uint64_t seed)
    : text_(text), batch_(batch), context_(context), random_(seed) {
  TORCH_CHECK(text.size() > context, "The text has ", text.size(), " bytes, and a context of ", context,
              " needs at least ", context + 1,
              ": the excerpt and the byte after it. Use a longer text, or a --context of ", text.size() - 1,
              " or less.");
}

Batch BatchSampler::next() {
  Batch batch{at::empty({batch_, context_}, at::kLong), at::empty({batch_, context_}, at::kLong)};
  int64_t* tokens = batch.tokens.mutable_data_ptr<int64_t>();
  int64_t* next_tokens = batch.next_tokens.mutable_data_ptr<int64_t>();
  const auto positions = static_cast<uint64_t>(text_.size() - context_);
  for (int64_t i = 0; i < batch_; ++i) {
    // Not std::uniform_int_distribution, whose results differ between standard libraries. The bias of the remainder is
    // below 2^-40 for any text that fits into memory.
    const size_t start = random_() % positions;
    for (int64_t t = 0; t < context_; ++t) {
      const size_t position = start + static_cast<size_t>(t);
      *tokens++ = text_.token(position);
      *next_tokens++ = text_.token(position + 1);
    }
  }
  return batch;
}

}  // namespace gpt
