// A set of operators given by name, for policies that list what they mean.
//
//   const OpNameSet ops = OpNameSet::parse("save_ops", {"aten::mm", "aten::add.Tensor"});
//   ops.contains(handle.operator_name());
//
// "aten::mm" means every overload, "aten::add.Tensor" that one. In-place forms are operators of their own: "aten::relu"
// does not mean "aten::relu_". '*' and '?' make a pattern: "aten::*mm*" matches base names, "aten::add.*" overloads,
// and in-place and out= forms where they fit. Names are kept as text, so that an overload registered later belongs to
// the set too.
//
// Threads: a const OpNameSet may be used by many at once.
#pragma once

#include <ATen/core/operator_name.h>

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "ac2/internal/operators/op_lookup.h"

namespace ac2::policies::internal {

class OpNameSet {
 public:
  // Throws c10::Error for a name that is malformed or that no operator is registered under, and for a pattern that
  // matches none, and for an empty list. The message starts with `caller` and suggests the nearest registered names.
  // Warns, once in a process, of a name that training never runs because autograd takes it apart, such as
  // "aten::linear".
  static OpNameSet parse(const std::string& caller, const std::vector<std::string>& names);
  // For names that the program itself knows, some of which only other LibTorch versions have. Nothing is checked.
  static OpNameSet parse_unchecked(const std::vector<std::string>& names);

  bool contains(const c10::OperatorName& op) const;

 private:
  struct Overloads {
    bool all = false;
    std::vector<std::string> listed;
  };

  void insert(const std::string& name);

  // By base name, so that the question costs one look-up and builds no string.
  absl::flat_hash_map<std::string, Overloads> by_base_;
  std::vector<ac2::internal::QualifiedName> patterns_;
};

}  // namespace ac2::policies::internal
