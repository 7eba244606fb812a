#include "policies/spill_to_file.h"

#include <c10/util/Exception.h>

#include <memory>

#include "policies/internal/common/pack_ops.h"
#include "policies/internal/spill/file_form.h"

namespace ac2::policies {

Policy spill_to_file(const std::string& directory, const std::vector<std::string>& ops, SpillOptions options) {
  TORCH_CHECK(!directory.empty(),
              "spill_to_file was given \"\" as its directory; expected the path of one in which this process "
              "may write.");
  TORCH_CHECK(options.queue_bytes >= 0, "spill_to_file was given a queue of ", options.queue_bytes,
              " bytes; expected 0 (each result is written before its op returns) or more.");
  TORCH_CHECK(options.file_bytes > 0, "spill_to_file was given files of ", options.file_bytes,
              " bytes; expected 1 or more.");
  const auto writer = std::make_shared<internal::SpillWriter>(directory, options.queue_bytes, options.file_bytes);
  return internal::pack_ops("spill_to_file", ops, /*is_inexact=*/false, [writer, name = "file " + directory] {
    return [writer, name](const std::string& op) -> FormPtr {
      return std::make_shared<const internal::FileForm>(writer, name, op, internal::FileForm::WhenFull::kThrow);
    };
  });
}

}  // namespace ac2::policies
