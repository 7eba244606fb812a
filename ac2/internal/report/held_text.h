// Text about the values that regions hold, and about the memory budget with which there would have been room.
// ac2::explain_held() and errors about memory have it.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ac2/internal/observe/held_values.h"

namespace ac2::internal {

// A part of the program, and the bytes that are held of it alone: "after layers.3: 4 tensors, such as aten::gelu [64,
// 512] float".
struct HeldPlace {
  std::string where;
  int64_t bytes = 0;
};
// Of all devices, those that hold most first, at most `count`.
std::vector<HeldPlace> largest_places(const std::vector<HeldValue>& held, size_t count);

// For each device: the ten places of the program that hold most. Without a line feed at its end.
std::string held_text(const std::vector<HeldValue>& held);
// The same for the memory that `error`, the text of an error, says has run out, and the budget. Empty if regions hold
// nothing there that nobody else refers to.
std::string held_where_short(const std::vector<HeldValue>& held, std::string_view error);

}  // namespace ac2::internal
