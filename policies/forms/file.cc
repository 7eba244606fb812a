#include <c10/util/Exception.h>

#include <memory>

#include "ac2/form.h"
#include "policies/internal/spill/file_form.h"

namespace ac2::forms {

namespace {

using policies::internal::FileForm;
using policies::internal::SpillWriter;

// Smaller tensors would be more calls to the system than bytes freed.
constexpr int64_t kMinBytes = 64 << 10;
constexpr int64_t kFileBytes = int64_t{256} << 20;

}  // namespace

FormPtr file(const std::string& directory) {
  TORCH_CHECK(!directory.empty(),
              "forms::file was given \"\" as its directory; expected the path of one in which this process may write.");
  // Without a queue a tensor is in the file when pack() returns: what the disk has no room for is still there then, and
  // its bytes are free at once, which is what a budget packs for.
  auto writer = std::make_shared<SpillWriter>(directory, /*queue_bytes=*/0, kFileBytes);
  return std::make_shared<const FileForm>(std::move(writer), "file " + directory, "an op", FileForm::WhenFull::kDecline,
                                          kMinBytes);
}

}  // namespace ac2::forms
