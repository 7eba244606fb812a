#include "ac2/internal/report/units.h"

#include <cstdio>

#include "absl/strings/str_cat.h"

namespace ac2::internal {

std::string bytes_text(int64_t bytes) {
  const auto b = static_cast<double>(bytes);
  char text[32];
  if (bytes < 1024) {
    std::snprintf(text, sizeof text, "%ld B", static_cast<long>(bytes));
  } else if (bytes < 1024 * 1024) {
    std::snprintf(text, sizeof text, "%.2f KiB", b / 1024);
  } else if (bytes < 1024 * 1024 * 1024) {
    std::snprintf(text, sizeof text, "%.2f MiB", b / (1024 * 1024));
  } else {
    std::snprintf(text, sizeof text, "%.2f GiB", b / (1024 * 1024 * 1024));
  }
  return text;
}

std::string time_text(int64_t ns) {
  char text[32];
  if (ns < 1'000'000) {
    std::snprintf(text, sizeof text, "%.1f us", static_cast<double>(ns) * 1e-3);
  } else if (ns < 10'000'000'000) {
    std::snprintf(text, sizeof text, "%.2f ms", static_cast<double>(ns) * 1e-6);
  } else {
    std::snprintf(text, sizeof text, "%.2f s", static_cast<double>(ns) * 1e-9);
  }
  return text;
}

std::string count_text(int64_t count, const char* thing) {
  return absl::StrCat(count, " ", thing, count == 1 ? "" : "s");
}

std::string pad(std::string text, size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

}  // namespace ac2::internal
