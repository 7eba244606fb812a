#include "ac2/internal/following/part_file.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ac2::internal {

std::filesystem::path behind_links(std::filesystem::path path) {
  constexpr int kMostLinks = 40;  // as Linux has it
  std::error_code error;
  for (int i = 0; i < kMostLinks && std::filesystem::is_symlink(std::filesystem::symlink_status(path, error)); ++i) {
    const std::filesystem::path to = std::filesystem::read_symlink(path, error);
    if (error) {
      break;
    }
    path = path.parent_path() / to;
  }
  return path;
}

PartFile::PartFile(std::filesystem::path path) : path_(std::move(path)) {
  static std::atomic<int64_t> made{0};
  do {
    part_ = path_.parent_path() / absl::StrCat(".ac2_plan_part", getpid(), "_", ++made);
    file_ = std::fopen(part_.c_str(), "wx");  // "x": an error if the file exists
  } while (file_ == nullptr && errno == EEXIST);
}

PartFile::~PartFile() {
  if (file_ != nullptr) {
    std::fclose(file_);
  }
  if (exists_ || file_ != nullptr) {
    std::remove(part_.c_str());
  }
}

bool PartFile::write(const std::string& text) {
  if (file_ == nullptr) {
    return false;
  }
  exists_ = true;
  const bool written = std::fwrite(text.data(), 1, text.size(), file_) == text.size();
  const int reason = errno;
  const bool closed = std::fclose(std::exchange(file_, nullptr)) == 0;
  if (!written) {
    errno = reason;
  }
  return written && closed;
}

std::error_code PartFile::finish() {
  std::error_code error;
  std::filesystem::rename(part_, path_, error);
  exists_ = static_cast<bool>(error);
  return error;
}

}  // namespace ac2::internal
