// A number of bytes that a person has written: "65536", "64MiB", "1.5 GiB". Without LibTorch, because a program that
// starts another one reads its options before there is any. Without abseil too, because ac2-run starts programs also
// where that is not installed.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <string_view>

namespace ac2::internal {

// Throws std::invalid_argument unless the text is a positive number of bytes below 2^63. The message begins with
// `name`, which says whose text it is.
int64_t parse_bytes(std::string_view text, std::string_view name);

// The text without the spaces, tabs and ends of lines before and behind it.
std::string_view without_spaces(std::string_view text);

}  // namespace ac2::internal
