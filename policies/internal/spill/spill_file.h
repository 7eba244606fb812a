// A file without a name, for bytes that are needed again before the process ends.
//
//   SpillFile file("/scratch");
//   file.write(offset, data, bytes);
//   file.read(offset, data, bytes);
//
// The file is removed from its directory as soon as it is open, so that nothing is left there however the process ends.
// Its space is free when this object dies.
//
// Rejected: a file for each value (descriptors run out) or for each region (a program with a hundred regions would have
// a hundred); mapping files into memory (a full disk is then a signal, not an error).
//
// Threads: any number may read and write at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace ac2::policies::internal {

class SpillFile {
 public:
  // Throws c10::Error if no file can be made in `directory`.
  explicit SpillFile(const std::string& directory);
  ~SpillFile();
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  // Writes all of it, or throws c10::Error with the system's message and how much was written.
  void write(int64_t offset, const void* data, size_t bytes) const;
  // Reads all of it, or throws c10::Error.
  void read(int64_t offset, void* data, size_t bytes) const;

  // The path that the file had.
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int descriptor_;
};

}  // namespace ac2::policies::internal
