// Tables of the facts about operators that their schemas do not say.
//
// op_facts.h puts it together with what the schema says; ask there, except for is_undefined_result(), which concerns
// verify mode alone. Each table in op_tables.cc says above it what a row means and how to add one. Rows name an op as
// "aten::name", without its overload, and hold for every overload. An op of your own needs no row: declare an argument
// that it writes as Tensor(a!) when you register it.
//
// A row whose op is not registered in this LibTorch does nothing, so a misspelt one goes unnoticed:
// tests/op_tables_test.cc compares rows with the schemas.
//
// Threads: any.
#pragma once

#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <string_view>

namespace ac2::internal {

// Writes into arguments that an op's schema does not declare.
struct HiddenWrites {
  std::string_view op;
  // Names of the schema's arguments, not their positions: a LibTorch version that adds one in front changes nothing.
  c10::ArrayRef<std::string_view> arguments;
  // Name of a bool argument that must be true for the op to write, or empty.
  std::string_view only_if;
  // Whether any result depends on what the written arguments held before.
  bool results_depend_on_old;
};

// Null if `op` writes nothing but what its schema says.
const HiddenWrites* find_hidden_writes(std::string_view op);

// A factory that returns the same values each time.
bool is_constant_factory(std::string_view op);
// An in-place op whose result does not depend on what its first argument held before. Arguments declared as out= are
// overwritten by definition and need no row.
bool overwrites_in_place(std::string_view op);
// Resizes a tensor: this may move its bytes to other memory, and leaves bytes that it adds undefined.
bool is_resize(std::string_view op);
// Whether autograd may ask a nested tensor for its sizes by this op, in a place where nothing may be thrown
// (InputMetadata in torch/csrc/autograd/input_metadata.h). So no policy is asked about it.
bool describes_nested(std::string_view op);
// Changes a tensor's metadata and no bytes, without saying so by Tag::inplace_view (or without being in-place at all).
bool writes_metadata(std::string_view op);
// Has Tag::inplace_view, but counts no new version of its argument.
bool counts_no_version(std::string_view op);
// Multiplies matrices or convolves, so that its bits depend on how precise LibTorch lets products of float32 be.
bool computes_products(std::string_view op);
// Communicates with other processes, or belongs to a library whose ops do.
bool is_collective(std::string_view op);
// Returns when what a collective writes has come.
bool waits_for_collective(std::string_view op);
// A collective for whose results wait_tensor() waits.
bool returns_before_results_come(std::string_view op);
// A backward kernel uses the op's result number `result` as scratch memory.
bool is_clobbered_result(std::string_view op, int result);
// The op leaves bytes of a result undefined on purpose. `tensor` counts the tensors among its results: if an op also
// returns integers, it is less than the result's number.
bool is_undefined_result(std::string_view op, int tensor);
// The op takes numbers and returns integers or bools, which do not depend on those numbers: on random ones, or on
// sizes.
bool has_discrete_results_of_no_numbers(std::string_view op);

// Where an op may compute other bits when it runs again on the same arguments.
enum class Varies : uint8_t { kNowhere, kOnAccelerators, kEverywhere };
Varies where_it_varies(std::string_view op);

}  // namespace ac2::internal
