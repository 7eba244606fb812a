#include "ac2/internal/libtorch/told_shortage.h"

#include <cstddef>
#include <string>

#include "absl/strings/numbers.h"

namespace ac2::internal {

namespace {

// What follows `words` in `text`; none if they are not there.
std::optional<std::string_view> after(std::string_view text, std::string_view words) {
  const size_t found = text.find(words);
  return found != std::string_view::npos ? std::optional(text.substr(found + words.size())) : std::nullopt;
}

// "4096 bytes", "20.50 GiB".
std::optional<int64_t> bytes_at(std::string_view text) {
  const size_t space = text.find(' ');
  double number = 0;
  if (space == std::string_view::npos || !absl::SimpleAtod(std::string(text.substr(0, space)), &number)) {
    return std::nullopt;
  }
  double unit = 1;
  for (const char* name : {"KiB", "MiB", "GiB", "TiB"}) {
    unit *= 1024;
    if (text.substr(space + 1, 3) == name) {
      return static_cast<int64_t>(number * unit);
    }
  }
  return static_cast<int64_t>(number);
}

std::optional<c10::DeviceIndex> index_at(std::string_view text) {
  int index = 0;
  const std::string digits(text.substr(0, text.find_first_not_of("0123456789")));
  return absl::SimpleAtoi(digits, &index) ? std::optional(static_cast<c10::DeviceIndex>(index)) : std::nullopt;
}

}  // namespace

std::optional<ToldShortage> told_shortage(std::string_view error) {
  // The texts of LibTorch's allocators begin their sentence in either way.
  const std::optional<std::string_view> asked = after(error, "ried to allocate ");
  if (const std::optional<std::string_view> rest = after(error, "can't allocate memory")) {
    return ToldShortage{.on_host = true, .bytes = bytes_at(asked ? *asked : after(*rest, ": ").value_or(""))};
  }
  if (!asked) {
    return std::nullopt;
  }
  const std::optional<std::string_view> gpu = after(*asked, "GPU ");
  return ToldShortage{.index = gpu ? index_at(*gpu) : std::nullopt, .bytes = bytes_at(*asked)};
}

bool is_about_hosts_memory(std::string_view error) {
  const std::optional<ToldShortage> told = told_shortage(error);
  return told && told->on_host;
}

}  // namespace ac2::internal
