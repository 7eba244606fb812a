// Operators by the names and patterns that people write. A name that no operator has is an error that suggests the
// nearest ones.
//
//   check_registered("save_ops", "aten::mmm");   // throws: … no operator named "aten::mmm" … Did you mean aten::mm?
//   check_registered("save_ops", "aten::*mm*");  // a pattern: some operator must match
//
// Threads: any.
#pragma once

#include <ATen/core/operator_name.h>

#include <optional>
#include <set>
#include <string>

namespace ac2::internal {

// The parts of "aten::add.Tensor". Without a dot there is no overload, which is not the same as the overload "",
// written "aten::sum.default" as in Python.
struct QualifiedName {
  std::string base;
  std::optional<std::string> overload;
};

QualifiedName split_name(const std::string& name);

// Whether the name has a '*', which stands for any characters, or a '?', which stands for one.
bool is_pattern(const std::string& name);
// `name` may be a pattern in either part. Without an overload it matches all of them.
bool matches(const QualifiedName& name, const c10::OperatorName& op);

// The overloads registered under a base name.
std::set<std::string> overloads_of(const std::string& base);

// Throws c10::Error for a name that is malformed or that no operator is registered under, and for a pattern that
// matches no operator. The message starts with `caller` and suggests the nearest registered names.
void check_registered(const std::string& caller, const std::string& name);

}  // namespace ac2::internal
