// A tape's part in packing values into a narrower form: a memory budget asks for that where there is no room for a
// value.
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/ApproximateClock.h>

#include <memory>
#include <utility>

#include "ac2/internal/libtorch/packed_bytes.h"
#include "ac2/internal/libtorch/python_lock.h"
#include "ac2/internal/libtorch/stream_order.h"
#include "ac2/internal/libtorch/unrecorded.h"
#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

namespace {

// A pack function and the tensor that it is to be given.
struct Narrowing {
  std::shared_ptr<const SaveWithHooks> functions;  // null if the value's bytes are not those that forward computed
  at::Tensor tensor;
};

Narrowing narrowing_of(Value& value) {
  if (!value.may_be_narrowed() || value.changed_outside()) {
    return {};
  }
  // Its last use may have been on another stream than the current one.
  value.set_stream(order_use(value.held_storage(), value.stream()));
  const PackedForm& form = *value.packed_form();
  return {form.functions, form.meta.over(value.held_storage())};
}

}  // namespace

std::optional<NarrowedTo> Tape::narrow_for_room(Value* value, c10::function_ref<bool()> may_narrow) {
  Narrowing narrowing;
  {
    const Lock locked(*this);
    if (may_narrow()) {
      narrowing = narrowing_of(*value);
    }
    if (narrowing.functions) {
      locked->lifetimes().ref(value);
    }
  }
  if (!narrowing.functions) {
    return std::nullopt;
  }
  const auto unref = [this, value] {
    const Lock locked(*this);
    locked->lifetimes().unref(value);
  };
  c10::IValue packed;
  c10::approx_time_t ticks = 0;
  try {
    const WithoutPythonLock without;
    observers().tell([&](Observer& observer) { observer.before_pack(*value, narrowing.tensor); });
    const Unrecorded guard;
    const c10::approx_time_t started = c10::getApproximateTime();
    packed = narrowing.functions->pack(narrowing.tensor);
    ticks = c10::getApproximateTime() - started;
  } catch (...) {
    unref();
    throw;
  }
  const c10::Storage& storage = narrowing.tensor.storage();
  keep_until_read(storage);  // the pack function may have read it on another stream than the one that it was made on
  const NarrowedTo to = {.bytes = bytes_of_tensors_in(packed),
                         .ticks = is_asynchronous(storage.device()) ? 0 : static_cast<double>(ticks)};
  const Lock locked(*this);
  // Another thread may have dropped, pinned or saved the value meanwhile, or a tag have given it another form.
  const bool is_narrower = !packed.isNone() && to.bytes < value->bytes();
  const bool narrows =
      is_narrower && may_narrow() && value->may_be_narrowed() && value->held_storage().is_alias_of(storage);
  if (narrows) {
    locked->kept().narrow(value, std::move(packed), to.bytes, current_stream(storage));
  }
  locked->lifetimes().unref(value);
  return narrows ? std::optional(to) : std::nullopt;
}

void Tape::drop_narrow_form(Value* value, c10::function_ref<bool()> is_known) {
  const Lock locked(*this);
  if (is_known()) {
    locked->kept().drop_narrow_form(value);
  }
}

}  // namespace ac2::internal
