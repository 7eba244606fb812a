#include "ac2/internal/forms/ready_made_forms.h"

#include <c10/util/Exception.h>

#include <array>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "ac2/internal/forms/check_forms.h"
#include "ac2/internal/policy_names/policy_names.h"

namespace ac2::internal {

namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kFormats{{
    {"bfloat16", "narrow BFloat16"},
    {"half", "narrow Half"},
    {"float8_e4m3fn", "narrow Float8_e4m3fn"},
    {"float8_e5m2", "narrow Float8_e5m2"},
}};

// Null if it is none.
FormPtr form_of_item(const std::string& item) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(item, absl::MaxSplits(':', 1));
  const auto& [kind, value] = parts;
  if (item == "host_memory") {
    return forms::host_memory();
  }
  if (item == "one_bit") {
    return ready_made_form("one bit");
  }
  if (kind == "file" && !value.empty()) {
    return ready_made_form("file " + value);
  }
  if (kind == "quantized") {
    return ready_made_form("quantized " + value + " bits, seed 0");
  }
  for (const auto& [format, name] : kFormats) {
    if (kind == "narrow" && value == format) {
      return ready_made_form(std::string(name));
    }
  }
  return nullptr;
}

}  // namespace

FormPtr ready_made_form(const std::string& name) {
#ifdef AC2_HAS_POLICIES
  return form_named(name);
#else
  // The compiler may take the address of a function for one that is never null; it is null in a program without them.
  return form_named != nullptr ? form_named(name) : nullptr;
#endif
}

Forms forms_of_list(std::string_view list, const std::string& option) {
  Forms forms;
  const std::vector<std::string> items = absl::StrSplit(std::string(list), ',', absl::SkipWhitespace());
  for (const std::string& item : items) {
    forms.push_back(form_of_item(item));
    TORCH_CHECK(forms.back() != nullptr, option, " has \"", item,
                "\"; expected some of one_bit, file:FOLDER, quantized:8, quantized:4, narrow:bfloat16 (or half, "
                "float8_e4m3fn, float8_e5m2) and host_memory, with commas between them.");
  }
  check_forms(forms, option);
  return forms;
}

}  // namespace ac2::internal
