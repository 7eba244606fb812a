// Numbers of bytes, as people write them.
//
//   ac2::MemoryBudget budget(2 * ac2::GiB);
//   ac2::MemoryBudget budget("1.5GiB");                       // as a flag or a file gives it
//   using namespace ac2::literals;
//   ac2::PolicyScope scope({.memory_budget = 2_GiB});
//
// KiB, MiB, GiB and TiB are powers of 1024.
//
// Threads: any.
#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace ac2 {

inline constexpr int64_t KiB = int64_t{1} << 10;
inline constexpr int64_t MiB = int64_t{1} << 20;
inline constexpr int64_t GiB = int64_t{1} << 30;
namespace literals {
consteval int64_t operator""_KiB(unsigned long long count) {
  return static_cast<int64_t>(count) * KiB;
}
consteval int64_t operator""_MiB(unsigned long long count) {
  return static_cast<int64_t>(count) * MiB;
}
consteval int64_t operator""_GiB(unsigned long long count) {
  return static_cast<int64_t>(count) * GiB;
}
}  // namespace literals

// A number of bytes that a function is given, as a number or as a text. The text has a number, with a fraction or not,
// and after it one of KiB, MiB, GiB and TiB, or nothing: "65536", "64MiB", "1.5 GiB".
class Bytes {
 public:
  constexpr Bytes(int64_t count) : count_(count) {}  // NOLINT(google-explicit-constructor)
  // Throws c10::Error unless the text is one as above of a positive number below 2^63; also for a null pointer, such as
  // std::getenv() returns. A template, so that no 0 is taken for a null pointer.
  template <std::convertible_to<std::string_view> Text>
  Bytes(const Text& text) : count_(count_in(text_of(text))) {}  // NOLINT(google-explicit-constructor)

  constexpr int64_t count() const { return count_; }

 private:
  template <class Text>
  static std::string_view text_of(const Text& text) {
    if constexpr (std::is_pointer_v<Text>) {
      return text == nullptr ? std::string_view() : std::string_view(text);
    } else {
      return text;
    }
  }
  static int64_t count_in(std::string_view text);

  int64_t count_;
};

}  // namespace ac2
