#include "ac2/internal/operators/op_lookup.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <fnmatch.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ac2/internal/operators/nearest_names.h"

namespace ac2::internal {

namespace {

bool is_well_formed(const QualifiedName& name, const std::string& text) {
  const size_t colons = name.base.find("::");
  const bool has_both_parts = colons != std::string::npos && colons > 0 && colons + 2 < name.base.size();
  return has_both_parts && name.base.find_first_of(" \t\n(),") == std::string::npos && !text.ends_with('.');
}

// The name that is probably meant by "mm", "aten.mm" or "torch.ops.aten.mm".
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

// How many mistakes a misspelt name may have to be recognised.
size_t plausible_mistakes(const std::string& base) {
  if (!is_pattern(base)) {
    return std::max<size_t>(2, base.size() / 4);
  }
  // A pattern of a few letters and a '*' is near to every name, so that only letters count.
  const size_t colons = base.find("::");
  const std::string own = colons == std::string::npos ? base : base.substr(colons + 2);
  const auto letters = std::count_if(own.begin(), own.end(), [](char c) { return c != '*' && c != '?'; });
  return std::max<size_t>(1, static_cast<size_t>(letters) / 4);
}

// The registered base names nearest to `base`, the nearest first, without those that are too far away to be meant.
std::vector<std::string> nearest_bases(const std::string& base) {
  std::set<std::string> bases;
  for (const c10::OperatorName& op : c10::Dispatcher::singleton().getAllOpNames()) {
    bases.insert(op.name);
  }
  return nearest_names(base, bases, plausible_mistakes(base));
}

bool is_registered(const std::string& base, const std::string& overload) {
  return c10::Dispatcher::singleton().findSchema({base, overload}).has_value();
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

void check_pattern(const std::string& caller, const std::string& text) {
  const QualifiedName pattern = split_name(text);
  for (const c10::OperatorName& op : c10::Dispatcher::singleton().getAllOpNames()) {
    if (matches(pattern, op) && is_registered(op.name, op.overload_name)) {
      return;
    }
  }
  TORCH_CHECK(false, caller, ": no operator matches the pattern \"", text, "\".", did_you_mean(pattern),
              " '*' stands for any characters, '?' for one; \"aten::*mm*\" has the products of matrices in it.");
}

}  // namespace

QualifiedName split_name(const std::string& name) {
  // Looked for after the namespace, because a namespace may have a dot in its name.
  const size_t colons = name.find("::");
  const size_t dot = name.find('.', colons == std::string::npos ? 0 : colons);
  if (dot == std::string::npos) {
    return {name, std::nullopt};
  }
  std::string overload = name.substr(dot + 1);
  // As Python writes it; the dispatcher accepts no overload of that name.
  if (overload == "default") {
    overload.clear();
  }
  return {name.substr(0, dot), std::move(overload)};
}

bool is_pattern(const std::string& name) {
  return name.find_first_of("*?") != std::string::npos;
}

bool matches(const QualifiedName& name, const c10::OperatorName& op) {
  return fnmatch(name.base.c_str(), op.name.c_str(), 0) == 0 &&
         (!name.overload || fnmatch(name.overload->c_str(), op.overload_name.c_str(), 0) == 0);
}

std::set<std::string> overloads_of(const std::string& base) {
  std::set<std::string> overloads;
  for (const c10::OperatorName& op : c10::Dispatcher::singleton().getAllOpNames()) {
    if (op.name == base && is_registered(op.name, op.overload_name)) {
      overloads.insert(op.overload_name);
    }
  }
  return overloads;
}

void check_registered(const std::string& caller, const std::string& text) {
  const QualifiedName name = split_name(text);
  TORCH_CHECK(is_well_formed(name, text), caller, ": \"", text,
              "\" is not an operator's name. Names are written \"aten::mm\" (every overload) or \"aten::add.Tensor\" "
              "(that one).",
              did_you_mean(split_name(guess_meaning(text))));

  if (is_pattern(text)) {
    check_pattern(caller, text);
    return;
  }
  // Most operators have the overload "", which is found at once. For others all names are searched.
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
    spelled.push_back(overload.empty() ? "\"default\"" : absl::StrCat("\"", overload, "\""));
  }
  TORCH_CHECK(false, caller, ": the operator \"", name.base, "\" has no overload \"", *name.overload, "\". It has ",
              absl::StrJoin(spelled, ", "), "; \"", name.base, "\" means all of them.");
}

}  // namespace ac2::internal
