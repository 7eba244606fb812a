#include "ac2/internal/report/held_text.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ac2/internal/libtorch/told_shortage.h"
#include "ac2/internal/report/units.h"

namespace ac2::internal {

namespace {

constexpr size_t kPlaces = 10;

// The values that one place of the program computed.
struct Place {
  int64_t bytes = 0;
  int64_t values = 0;
  int64_t largest = 0;
  std::string what;  // the largest of them
};

// The values that are held on one device.
struct OnDevice {
  int64_t bytes = 0;
  int64_t droppable_bytes = 0;  // that a budget with a number might have dropped
  int64_t values = 0;
  int64_t shared_bytes = 0;  // that the program refers to as well
  std::map<std::string, Place> places;
};

std::string place_of(const HeldValue& held) {
  if (!held.name.empty()) {
    return absl::StrCat("\"", held.name, "\"", held.where.empty() ? "" : ", ", held.where);
  }
  return held.where.empty() ? held.what : held.where;
}

std::map<c10::Device, OnDevice, bool (*)(const c10::Device&, const c10::Device&)> by_device(
    const std::vector<HeldValue>& all) {
  const auto less = [](const c10::Device& a, const c10::Device& b) {
    return std::pair(a.type(), a.index()) < std::pair(b.type(), b.index());
  };
  std::map<c10::Device, OnDevice, bool (*)(const c10::Device&, const c10::Device&)> devices(less);
  for (const HeldValue& held : all) {
    OnDevice& there = devices[held.device];
    if (!held.alone) {
      there.shared_bytes += held.bytes;
      continue;
    }
    there.bytes += held.bytes;
    there.droppable_bytes += held.drops_in_time ? 0 : held.bytes;
    ++there.values;
    Place& place = there.places[place_of(held)];
    place.bytes += held.bytes;
    ++place.values;
    if (held.bytes > place.largest) {
      place.largest = held.bytes;
      place.what = held.what;
    }
  }
  return devices;
}

std::string text_of(const std::string& where, const Place& place) {
  if (where != place.what) {
    return absl::StrCat(where, ": ", place.values > 1 ? absl::StrCat(place.values, " tensors, such as ") : "",
                        place.what);
  }
  return place.values > 1 ? absl::StrCat(where, ", ", count_text(place.values, "time")) : where;
}

std::string text_of(const c10::Device& device, const OnDevice& holdings) {
  std::vector<std::pair<std::string, Place>> places(holdings.places.begin(), holdings.places.end());
  std::stable_sort(places.begin(), places.end(),
                   [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  std::vector<std::string> lines{absl::StrCat(
      "On ", device.str(), " ac2's regions hold ", bytes_text(holdings.bytes),
      " for backward that nobody else refers to, in ", count_text(holdings.values, "tensor"),
      holdings.shared_bytes > 0 ? absl::StrCat(", and share ", bytes_text(holdings.shared_bytes), " with the program")
                                : "",
      places.empty() ? "." : ". Most is held of:")};
  for (size_t i = 0; i < std::min(places.size(), kPlaces); ++i) {
    const auto& [where, place] = places[i];
    lines.push_back(absl::StrCat("  ", pad(bytes_text(place.bytes), 10), "  ", text_of(where, place)));
  }
  if (places.size() > kPlaces) {
    int64_t rest = 0;
    for (size_t i = kPlaces; i < places.size(); ++i) {
      rest += places[i].second.bytes;
    }
    lines.push_back(absl::StrCat("  ... and ", places.size() - kPlaces, " more places, ", bytes_text(rest)));
  }
  return absl::StrJoin(lines, "\n");
}

std::string budget_text(int64_t droppable, int64_t asked, bool on_host) {
  if (droppable == 0) {
    return absl::StrCat("A memory_budget would not have made room for the ", bytes_text(asked),
                        " that were asked for: the budget of these regions drops what it can before this error "
                        "arrives.");
  }
  if (asked >= droppable) {
    return absl::StrCat("A memory_budget may not be enough: ", bytes_text(asked),
                        " were asked for, which is as much as regions hold or more.");
  }
  return absl::StrCat("With a memory_budget of ", droppable - asked, " bytes (", bytes_text(droppable - asked),
                      "), which these regions share, there would have been room for the ", bytes_text(asked),
                      " that were asked for",
                      on_host ? ", unless malloc keeps what is dropped in pieces that are smaller." : ".");
}

}  // namespace

std::vector<HeldPlace> largest_places(const std::vector<HeldValue>& held, size_t count) {
  std::vector<HeldPlace> all;
  for (const auto& [device, holdings] : by_device(held)) {
    for (const auto& [where, place] : holdings.places) {
      all.push_back({text_of(where, place), place.bytes});
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const HeldPlace& a, const HeldPlace& b) { return a.bytes > b.bytes; });
  all.resize(std::min(all.size(), count));
  return all;
}

std::string held_text(const std::vector<HeldValue>& held) {
  std::vector<std::string> texts;
  for (const auto& [device, holdings] : by_device(held)) {
    texts.push_back(text_of(device, holdings));
  }
  return texts.empty() ? "ac2's regions hold nothing." : absl::StrJoin(texts, "\n");
}

std::string held_where_short(const std::vector<HeldValue>& held, std::string_view error) {
  const std::optional<ToldShortage> told = told_shortage(error);
  const bool on_host = (told && told->on_host) ||
                       std::all_of(held.begin(), held.end(), [](const HeldValue& one) { return one.device.is_cpu(); });
  const auto is_short = [&](c10::Device device) {
    return device.is_cpu() == on_host && (on_host || !told || !told->index || device.index() == *told->index);
  };
  std::vector<std::string> texts;
  int64_t most = -1;
  for (const auto& [device, holdings] : by_device(held)) {
    if (is_short(device) && holdings.bytes > 0) {
      texts.push_back(text_of(device, holdings));
      most = std::max(most, holdings.droppable_bytes);
    }
  }
  if (texts.empty()) {
    return "";
  }
  if (told && told->bytes) {
    texts.push_back(budget_text(most, *told->bytes, on_host));
  }
  return absl::StrJoin(texts, "\n");
}

}  // namespace ac2::internal
