#include "policies/internal/op_names.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ac2::policies::internal {

namespace {

// "aten::add.Tensor" taken apart. Without a dot the overload is absent, which is not the same as the overload "".
struct QualifiedName {
  std::string base;
  std::optional<std::string> overload;
};

QualifiedName split(const std::string& name) {
  // From the namespace on: some other namespace may have a dot in its name.
  const size_t colons = name.find("::");
  const size_t dot = name.find('.', colons == std::string::npos ? 0 : colons);
  if (dot == std::string::npos) {
    return {name, std::nullopt};
  }
  return {name.substr(0, dot), name.substr(dot + 1)};
}

bool is_well_formed(const QualifiedName& name) {
  const size_t colons = name.base.find("::");
  const bool has_both_parts = colons != std::string::npos && colons > 0 && colons + 2 < name.base.size();
  return has_both_parts && name.base.find_first_of(" \t\n(),") == std::string::npos &&
         (!name.overload || !name.overload->empty());
}

// What someone who wrote "mm", "aten.mm" or "torch.ops.aten.mm" had in mind.
std::string guess_meaning(std::string name) {
  if (name.find("::") != std::string::npos) {
    return name;
  }
  if (name.starts_with("torch.ops.")) {
    name.erase(0, std::string("torch.ops.").size());
    if (const size_t dot = name.find('.'); dot != std::string::npos) {
      return name.replace(dot, 1, "::");
    }
  }
  if (name.starts_with("aten.")) {
    return name.replace(std::string("aten").size(), 1, "::");
  }
  return "aten::" + name;
}

// Levenshtein's, stopped where it exceeds `limit`: then the result is limit + 1.
size_t edit_distance(const std::string& a, const std::string& b, size_t limit) {
  if (std::max(a.size(), b.size()) - std::min(a.size(), b.size()) > limit) {
    return limit + 1;
  }
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) {
    row[j] = j;
  }
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
    if (*std::min_element(row.begin(), row.end()) > limit) {
      return limit + 1;
    }
  }
  return row.back();
}

// Registered base names, nearest first, and none that nobody could have meant.
std::vector<std::string> nearest_bases(const std::string& base) {
  constexpr size_t kMost = 3;
  const size_t limit = std::max<size_t>(2, base.size() / 4);
  std::set<std::string> bases;
  for (const c10::OperatorName& op : c10::Dispatcher::singleton().getAllOpNames()) {
    bases.insert(op.name);
  }
  std::vector<std::pair<size_t, std::string>> near;
  for (const std::string& candidate : bases) {
    if (const size_t distance = edit_distance(base, candidate, limit); distance <= limit) {
      near.emplace_back(distance, candidate);
    }
  }
  std::sort(near.begin(), near.end());
  if (!near.empty() && near.front().first == 0) {
    return {near.front().second};
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(near.size(), kMost); ++i) {
    names.push_back(near[i].second);
  }
  return names;
}

bool is_registered(const std::string& base, const std::string& overload) {
  return c10::Dispatcher::singleton().findSchema({base, overload}).has_value();
}

// The overloads registered under a base name, sorted.
std::set<std::string> overloads_of(const std::string& base) {
  std::set<std::string> overloads;
  for (const c10::OperatorName& op : c10::Dispatcher::singleton().getAllOpNames()) {
    if (op.name == base && is_registered(op.name, op.overload_name)) {
      overloads.insert(op.overload_name);
    }
  }
  return overloads;
}

std::string did_you_mean(const QualifiedName& name) {
  std::vector<std::string> suggestions = nearest_bases(name.base);
  if (suggestions.empty()) {
    return "";
  }
  for (std::string& suggestion : suggestions) {
    if (name.overload && is_registered(suggestion, *name.overload)) {
      absl::StrAppend(&suggestion, ".", *name.overload);
    }
  }
  return absl::StrCat(" Did you mean ", absl::StrJoin(suggestions, ", "), "?");
}

void check_registered(const std::string& caller, const std::string& text) {
  const QualifiedName name = split(text);
  TORCH_CHECK(is_well_formed(name), caller, ": \"", text,
              "\" is not an operator's name. Names are written \"aten::mm\" (every overload) or \"aten::add.Tensor\" "
              "(that one).",
              did_you_mean(split(guess_meaning(text))));

  // Most operators have the overload "", which is found at once; only for the others all names are looked through.
  if (is_registered(name.base, name.overload.value_or(""))) {
    return;
  }
  const std::set<std::string> overloads = overloads_of(name.base);
  TORCH_CHECK(!overloads.empty(), caller, ": no operator named \"", name.base, "\" is registered.", did_you_mean(name),
              " If a library of yours registers it, load that library before you make the policy.");
  if (!name.overload) {
    return;
  }
  std::vector<std::string> spelled;
  spelled.reserve(overloads.size());
  for (const std::string& overload : overloads) {
    spelled.push_back(overload.empty() ? "one without a name" : absl::StrCat("\"", overload, "\""));
  }
  TORCH_CHECK(false, caller, ": the operator \"", name.base, "\" has no overload \"", *name.overload, "\". It has ",
              absl::StrJoin(spelled, ", "), "; \"", name.base, "\" means all of them.");
}

// Variants that write (out=) do not count: autograd does not take them.
bool is_composite(const std::string& text) {
  const QualifiedName name = split(text);
  bool composite = false;
  for (const std::string& overload : overloads_of(name.base)) {
    const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(name.base.c_str(), overload.c_str());
    if (op.schema().is_mutable() || (name.overload && *name.overload != overload)) {
      continue;
    }
    if (!op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
      return false;
    }
    composite = true;
  }
  return composite;
}

// Not an error: a backend may have a kernel of its own for such an operator, and then it is seen.
void warn_if_composite(const std::string& caller, const std::string& name) {
  static std::mutex mutex;
  static std::set<std::string> checked;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!checked.insert(name).second) {
      return;
    }
  }
  if (is_composite(name)) {
    TORCH_WARN(caller, ": \"", name,
               "\" is made of other operators, and in training a policy is asked about those, not about it. List them "
               "instead; ac2::to_dot shows what a region recorded.");
  }
}

}  // namespace

OpNameSet OpNameSet::parse(const std::string& caller, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    check_registered(caller, name);
    warn_if_composite(caller, name);
  }
  return parse_unchecked(names);
}

OpNameSet OpNameSet::parse_unchecked(const std::vector<std::string>& names) {
  OpNameSet set;
  for (const std::string& name : names) {
    set.insert(name);
  }
  return set;
}

void OpNameSet::insert(const std::string& name) {
  QualifiedName parts = split(name);
  Overloads& overloads = by_base_[parts.base];
  if (parts.overload) {
    overloads.listed.push_back(*std::move(parts.overload));
  } else {
    overloads.all = true;
  }
}

bool OpNameSet::contains(const c10::OperatorName& op) const {
  const auto found = by_base_.find(op.name);
  if (found == by_base_.end()) {
    return false;
  }
  const Overloads& overloads = found->second;
  return overloads.all ||
         std::find(overloads.listed.begin(), overloads.listed.end(), op.overload_name) != overloads.listed.end();
}

}  // namespace ac2::policies::internal
