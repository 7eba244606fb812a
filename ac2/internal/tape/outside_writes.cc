#include "ac2/internal/tape/outside_writes.h"

#include <c10/util/Exception.h>

#include <string>

#include "ac2/internal/graph/parts_sample.h"
#include "ac2/internal/graph/read_sample.h"
#include "ac2/internal/libtorch/spelling.h"
#include "ac2/internal/libtorch/torch_compat.h"

namespace ac2::internal {

namespace {

std::string versions_text(const Value& value) {
  const WatchedVersions::Change change = value.versions().first_change(seen_writes(), value.watched_storage());
  return c10::str(
      "is at version ", change.found, "; expected version ", change.expected, " instead.",
      change.last_op != nullptr ? c10::str(" The op that wrote to it last is ", change.last_op, ".") : std::string());
}

std::string what_it_is(const Value& value) {
  return value.producer() != nullptr ? "the result of " + describe(*value.producer())
                                     : std::string("a tensor that the region took as input");
}

}  // namespace

void check_unchanged(const Value& value) {
  if (value.is_held_privately() || !value.changed_outside()) {
    return;
  }
  throw ModifiedInPlace(
      {__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
      c10::str(
          kModifiedInPlace, what_it_is(value), " of ", value.nbytes(), " bytes ", versions_text(value),
          " Autograd saved it in an ac2 region and reads it in backward, as it does without a region; or a replay "
          "reads it, and no dispatcher saw the write. Write to a clone() of it, or after backward, or let a policy "
          "save what was computed from it. Saved-tensor hooks that are entered around a region, as PyTorch's "
          "allow_mutation_on_saved_tensors() is, are not asked in it: enter them inside."),
      value);
}

void check_version_of_leaf(const c10::TensorImpl& leaf, uint32_t expected) {
  const uint32_t found = version_of(leaf.version_counter());
  TORCH_CHECK(found == expected, kModifiedInPlace, "a leaf that was given other data after it was saved is at version ",
              found, "; expected version ", expected, " instead. Write to it after backward.");
}

void check_offloaded_unchanged(const Value& value) {
  // If an op of the region has written over the value, host memory has the old bytes; see Overwrites.
  if (value.original_address() != nullptr) {
    check_unchanged(value);
  }
}

void check_opaque_unchanged(const Value& value) {
  if (!value.changed_outside()) {
    return;
  }
  const at::Tensor& held = value.opaque_form()->held;
  throw ModifiedInPlace(
      {__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
      c10::str(
          kModifiedInPlace, "a ", held.defined() ? held.toString() : "tensor", " ", versions_text(value),
          " An ac2 region holds such a tensor whole. Its ops wrote to it, or others did, before backward. Write to "
          "a clone() of it or after backward, or save the results of the ops that read it (MUST_SAVE)."),
      value);
}

void check_parts_unchanged(const Value& value) {
  const OpaqueForm& form = *value.opaque_form();
  if (form.sample == 0 || !form.held.defined() || parts_sample(*form.held.unsafeGetTensorImpl()) == form.sample) {
    return;
  }
  throw ModifiedInPlace(
      {__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
      c10::str(kModifiedInPlace, "the values of a ", form.held.toString(),
               " are not those that the region has read. Something wrote to them after an op of the region had taken "
               "the tensor, through values(), .data or the tensor that it was made of. Write to a clone() of it or "
               "after backward, or save the results of the ops that read it (MUST_SAVE)."),
      value);
}

void check_read_again(const Node& node, const NodeInput& input, const at::Tensor& tensor) {
  if (C10_LIKELY(sample_of_bytes(tensor) == input.sample)) {
    return;
  }
  throw ModifiedInPlace(
      {__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
      c10::str(kModifiedInPlace, what_it_is(*input.value), ", of sizes ", tensor.sizes(), " and dtype ",
               tensor.scalar_type(), ", holds other bytes than ", describe(node),
               " has read. Something that no dispatcher sees has written to it since, such as a kernel that was given "
               "data_ptr(), so that a replay of the op would compute something else. Call ",
               spelled("ac2::expose(tensor)", "ac2.expose(tensor)"),
               " before such a write, write to a clone() of the tensor or after backward, or let a policy save what "
               "the op computed."),
      *input.value);
}

}  // namespace ac2::internal
