#include "policies/internal/common/module_rules.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "ac2/internal/operators/nearest_names.h"

namespace ac2::policies::internal {

using ac2::internal::KnownModule;
using ac2::internal::KnownModules;
using ac2::internal::ModuleName;
using ac2::internal::ModulePlace;
using ac2::internal::PathPattern;

namespace {

constexpr const char* kExpected =
    "expected the dotted name of a module, or its class, and optionally \" :: \" and an op, as in "
    "\"layers.*.attention.wo\", \"LlamaMLP\" or \"layers.*.mlp :: aten.gelu\"";

// A pattern as it is written, without the spaces around its parts.
struct Parts {
  std::string path;
  std::optional<std::string> op;
};

// The separator has a space on both sides, because names of ops and of classes in C++ have colons too.
Parts split(const std::string& text) {
  const std::string padded = absl::StrCat(" ", text, " ");
  const std::vector<std::string> parts = absl::StrSplit(padded, " :: ");
  TORCH_CHECK(parts.size() <= 2, "by_module: the pattern \"", text, "\" has \" :: \" ", parts.size() - 1, " times; ",
              kExpected, ".");
  Parts split{.path = std::string(absl::StripAsciiWhitespace(parts[0])), .op = std::nullopt};
  if (parts.size() == 2) {
    split.op = std::string(absl::StripAsciiWhitespace(parts[1]));
    TORCH_CHECK(!split.op->empty(), "by_module: the pattern \"", text, "\" has no op behind \"::\"; ", kExpected, ".");
  }
  return split;
}

void check_path(const std::string& path, const std::string& text) {
  if (const size_t colons = path.find("::"); colons != std::string::npos) {
    const std::string before(absl::StripTrailingAsciiWhitespace(path.substr(0, colons)));
    const std::string after(absl::StripLeadingAsciiWhitespace(path.substr(colons + 2)));
    // "aten::gelu" is an op; the others of the form are a module and an op, or a class of C++.
    const bool is_op = c10::Dispatcher::singleton().findOp({path, ""}) || before == "aten";
    TORCH_CHECK(false, "by_module: the pattern \"", text, "\" has \"::\" without a space on both sides. ",
                is_op ? absl::StrCat("Ops of all modules are \"** :: ", path, "\"")
                      : absl::StrCat("An op of a module is \"", before, " :: ", after, "\""),
                ", and classes are named without namespaces; ", kExpected, ".");
  }
  TORCH_CHECK(path.find_first_of(" \t\n(),/") == std::string::npos, "by_module: the pattern \"", text,
              "\" is no module's name; ", kExpected, ".");
  if (path.empty()) {
    return;
  }
  for (const std::string& component : std::vector<std::string>(absl::StrSplit(path, '.'))) {
    TORCH_CHECK(!component.empty(), "by_module: the pattern \"", text, "\" has an empty component; ", kExpected, ".");
    TORCH_CHECK(component == "**" || component.find("**") == std::string::npos, "by_module: the pattern \"", text,
                "\" has \"**\" in the component \"", component,
                "\". \"**\" stands for any number of components, and alone between dots; '*' stands for characters "
                "within one.");
  }
}

// "aten::gelu" of "aten.gelu" and "torch.ops.aten.gelu".
std::string with_colons(std::string op) {
  if (op.find("::") != std::string::npos) {
    return op;
  }
  const std::string prefix = "torch.ops.";
  if (op.starts_with(prefix)) {
    op.erase(0, prefix.size());
  }
  const size_t dot = op.find('.');
  return dot == std::string::npos ? op : op.replace(dot, 1, "::");
}

bool has_wildcard(const std::string& text) {
  return text.find_first_of("*?") != std::string::npos;
}

// "layers.*.mlp" of "layers.3.mlp".
std::string with_stars(const std::string& path) {
  std::vector<std::string> components = absl::StrSplit(path, '.');
  for (std::string& component : components) {
    if (!component.empty() && component.find_first_not_of("0123456789") == std::string::npos) {
      component = "*";
    }
  }
  return absl::StrJoin(components, ".");
}

// The holder Block is the name that a C++ program uses of the class BlockImpl.
std::string as_people_call(const std::string& class_name) {
  return class_name.ends_with("Impl") ? class_name.substr(0, class_name.size() - 4) : class_name;
}

// The names of modules and classes that are probably meant by a pattern's path.
std::vector<std::string> meant_by(const std::string& path, const KnownModules& known) {
  std::set<std::string> candidates;
  for (const KnownModule& module : known) {
    candidates.insert(has_wildcard(path) ? with_stars(module.path) : module.path);
    candidates.insert(as_people_call(module.class_name));
  }
  candidates.erase("");
  const auto letters = std::count_if(path.begin(), path.end(), [](char c) { return c != '*' && c != '?'; });
  return ac2::internal::nearest_names(path, candidates, std::max<size_t>(2, static_cast<size_t>(letters) / 4));
}

// A few of them, in their order, those that differ by a number alone as one.
std::string examples_of(const KnownModules& known) {
  constexpr size_t kMost = 8;
  std::vector<std::string> names;
  for (const KnownModule& module : known) {
    std::string name =
        absl::StrCat("\"", module.path.empty() ? as_people_call(module.class_name) : with_stars(module.path), "\"");
    if (name == "\"\"" || std::find(names.begin(), names.end(), name) != names.end()) {
      continue;
    }
    if (names.size() == kMost) {
      names.emplace_back("…");
      break;
    }
    names.push_back(std::move(name));
  }
  return absl::StrJoin(names, ", ");
}

}  // namespace

bool ModuleRules::Rule::has_class(const std::string& name) const {
  // C++ calls the module of the holder Block BlockImpl.
  return !class_name.empty() && (name == class_name || name == class_name + "Impl");
}

bool ModuleRules::Rule::matches(const ModulePlace& place, int64_t model) const {
  for (const ModulePlace* module = &place; module->around() != nullptr; module = module->around()) {
    const std::string* name = module->path_in(model);
    const bool is_of_model = name != nullptr || model == ModuleName::kOutermost;
    if ((name != nullptr && path.matches_around(*name)) || (is_of_model && has_class(module->class_name()))) {
      return true;
    }
  }
  return false;
}

ModuleRules::Rule ModuleRules::parse_one(const std::string& text, PolicyDecision decision) {
  const Parts parts = split(text);
  check_path(parts.path, text);
  std::optional<OpNameSet> ops;
  std::string key = parts.path;
  if (parts.op) {
    const std::string op = with_colons(*parts.op);
    ops = OpNameSet::parse(absl::StrCat("by_module, \"", text, "\""), {op});
    absl::StrAppend(&key, " :: ", op);
  }
  const bool may_be_class = !has_wildcard(parts.path) && parts.path.find('.') == std::string::npos;
  return {.text = text,
          .path_text = parts.path,
          .key = std::move(key),
          .path = PathPattern(parts.path),
          .class_name = may_be_class ? parts.path : "",
          .is_everything = parts.path == "**",
          .ops = std::move(ops),
          .decision = std::move(decision)};
}

ModuleRules ModuleRules::parse(const std::vector<std::pair<std::string, PolicyDecision>>& rules) {
  TORCH_CHECK(!rules.empty(),
              "by_module was given no rule. Give it at least one, such as {\"layers.*.mlp\", PREFER_RECOMPUTE}.");
  ModuleRules parsed;
  std::set<std::string> keys;
  for (const auto& [text, decision] : rules) {
    parsed.rules_.push_back(parse_one(text, decision));
    TORCH_CHECK(keys.insert(parsed.rules_.back().key).second, "by_module was given the pattern \"", text,
                "\" twice. The first rule that matches decides, so that the second would never: leave one out.");
  }
  return parsed;
}

ModuleRules::Matching ModuleRules::at(const ModulePlace& place, int64_t model) const {
  Matching matching;
  for (uint32_t i = 0; i < rules_.size(); ++i) {
    if (rules_[i].is_everything || rules_[i].matches(place, model)) {
      matching.push_back(i);
    }
  }
  return matching;
}

ModuleRules::Matching ModuleRules::at(const std::string& path) const {
  Matching matching;
  for (uint32_t i = 0; i < rules_.size(); ++i) {
    if (rules_[i].path.matches_around(path)) {
      matching.push_back(i);
    }
  }
  return matching;
}

const PolicyDecision* ModuleRules::decide(const Matching& matching, const c10::OperatorName& op) const {
  for (const uint32_t i : matching) {
    const Rule& rule = rules_[i];
    if (!rule.ops || rule.ops->contains(op)) {
      return &rule.decision;
    }
  }
  return nullptr;
}

std::string ModuleRules::complaint(const KnownModules& known, const std::vector<const ModulePlace*>& places,
                                   const std::string& where) const {
  std::vector<std::string> sentences;
  for (const Rule& rule : rules_) {
    const bool is_matched =
        rule.is_everything ||
        std::any_of(known.begin(), known.end(),
                    [&](const KnownModule& module) {
                      return rule.path.matches_around(module.path) || rule.has_class(module.class_name);
                    }) ||
        std::any_of(places.begin(), places.end(),
                    [&](const ModulePlace* place) { return rule.matches(*place, ModuleName::kOutermost); });
    if (is_matched) {
      continue;
    }
    const std::vector<std::string> meant = meant_by(rule.path_text, known);
    sentences.push_back(absl::StrCat("the pattern \"", rule.text, "\" matches no module ", where, ".",
                                     meant.empty() ? "" : " Did you mean ", absl::StrJoin(meant, ", "),
                                     meant.empty() ? "" : "?"));
  }
  if (sentences.empty()) {
    return "";
  }
  const std::string examples = examples_of(known);
  return absl::StrCat("by_module: ", absl::StrJoin(sentences, " And "), " ",
                      examples.empty() ? "No module was there." : absl::StrCat("Modules there: ", examples, "."));
}

}  // namespace ac2::policies::internal
