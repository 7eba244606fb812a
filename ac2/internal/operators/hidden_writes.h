// Ops that write into an argument without saying so in their schema.
//
// To add one: a row in the table of hidden_writes.cc and a case in tests/record/write_ops_test.cc. An op of your own
// needs no row: declare the argument as Tensor(a!) when you register it.
#pragma once

#include <c10/util/ArrayRef.h>

#include <string>
#include <string_view>

namespace ac2::internal {

struct HiddenWrites {
  std::string_view op;  // without overload
  // Names of the schema's arguments, so that a version that adds one in front changes nothing.
  c10::ArrayRef<std::string_view> arguments;
  // Name of a bool argument that must be true for the op to write, or empty.
  std::string_view only_if;
  // Whether any result depends on what stood there before.
  bool results_depend_on_old;
};

// Null if `op` writes nothing but what its schema says.
const HiddenWrites* find_hidden_writes(std::string_view op);

}  // namespace ac2::internal
