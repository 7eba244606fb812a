// Files that are replaced as a whole: a reader has the old file or the new one.
//
//   PartFile part(behind_links(path));
//   if (!part.write(text)) …             // the reason is in errno
//   if (std::error_code error = part.finish()) …
//
// Threads: a PartFile belongs to one; others may replace the same file meanwhile.
#pragma once

#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>

namespace ac2::internal {

// Where a file of this path lies once symbolic links are followed. A link to a file that does not exist names the file
// that is to be made. In a circle of links the answer is one of them.
std::filesystem::path behind_links(std::filesystem::path path);

// A file under another name until it is whole. Until finish() it goes with this object.
class PartFile {
 public:
  // The file lies in the directory of `path`, so that the file system renames it in one step. No other PartFile has
  // its name, in this process or another.
  explicit PartFile(std::filesystem::path path);
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;
  ~PartFile();

  // False, with the reason in errno, if the text cannot be written whole.
  bool write(const std::string& text);
  std::error_code finish();

 private:
  std::filesystem::path path_, part_;
  std::FILE* file_ = nullptr;
  bool exists_ = false;
};

}  // namespace ac2::internal
