#include "policies/internal/spill/spill_file.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace ac2::policies::internal {

namespace {

// Linux writes and reads no more at once.
constexpr size_t kMostAtOnce = size_t{1} << 30;

std::string last_error() {
  return std::generic_category().message(errno);
}

}  // namespace

SpillFile::SpillFile(const std::string& directory)
    : path_(directory + "/ac2-spill-XXXXXX"), descriptor_(::mkostemp(path_.data(), O_CLOEXEC)) {
  TORCH_CHECK(descriptor_ >= 0, "spill_to_file cannot make a file in \"", directory, "\": ", last_error(),
              ". Give an existing directory in which this process may write.");
  ::unlink(path_.c_str());
}

SpillFile::~SpillFile() {
  ::close(descriptor_);
}

void SpillFile::write(int64_t offset, const void* data, size_t bytes) const {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t written = ::pwrite(descriptor_, static_cast<const char*>(data) + done,
                                     std::min(bytes - done, kMostAtOnce), offset + static_cast<int64_t>(done));
    if (written < 0 && errno == EINTR) continue;
    TORCH_CHECK(written > 0, "cannot write ", bytes, " bytes to \"", path_,
                "\" (removed from its directory): ", written < 0 ? last_error() : "nothing was written", ", after ",
                offset + static_cast<int64_t>(done), " bytes of the file.");
    done += static_cast<size_t>(written);
  }
}

void SpillFile::read(int64_t offset, void* data, size_t bytes) const {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t got = ::pread(descriptor_, static_cast<char*>(data) + done, std::min(bytes - done, kMostAtOnce),
                                offset + static_cast<int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    TORCH_CHECK(got > 0, "cannot read ", bytes, " bytes back from \"", path_,
                "\" (removed from its directory): ", got < 0 ? last_error() : "the file ends", " at byte ",
                offset + static_cast<int64_t>(done), ".");
    done += static_cast<size_t>(got);
  }
}

}  // namespace ac2::policies::internal
