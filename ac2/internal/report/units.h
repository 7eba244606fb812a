// Numbers as people read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace ac2::internal {

// "12 B", "1.50 KiB", "3.25 GiB"
std::string bytes_text(int64_t bytes);
// "12.5 us", "3.25 ms"; from ten seconds on "12.34 s"
std::string time_text(int64_t ns);
// "1 op", "2 ops"
std::string count_text(int64_t count, const char* thing);
// `text` with spaces before it, up to `width` characters.
std::string pad(std::string text, size_t width);

}  // namespace ac2::internal
