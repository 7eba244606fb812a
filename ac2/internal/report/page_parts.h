// The page of write_report() without its data. The folder page/ has it as files, of which the build makes the
// definition (embed_page.sh).
//
// Threads: any.
#pragma once

#include <string_view>
#include <vector>

namespace ac2::internal {

// The parts of each are to stand one after the other.
struct PageParts {
  std::vector<std::string_view> before_data;
  std::vector<std::string_view> after_data;
};

PageParts page_parts();

}  // namespace ac2::internal
