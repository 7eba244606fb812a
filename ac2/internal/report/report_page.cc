#include "ac2/internal/report/report_page.h"

#include <string_view>

#include "ac2/internal/report/page_parts.h"

namespace ac2::internal {

std::string report_page(const std::string& data) {
  const PageParts parts = page_parts();
  std::string page;
  for (const std::string_view part : parts.before_data) {
    page += part;
  }
  page += data;
  for (const std::string_view part : parts.after_data) {
    page += part;
  }
  return page;
}

}  // namespace ac2::internal
