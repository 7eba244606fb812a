// A tape's part in packing values: a memory budget asks for that where there is no room for a value.
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/ApproximateClock.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "ac2/internal/forms/pack_apart.h"
#include "ac2/internal/forms/packing_cost.h"
#include "ac2/internal/libtorch/packed_bytes.h"
#include "ac2/internal/libtorch/python_lock.h"
#include "ac2/internal/libtorch/stream_order.h"
#include "ac2/internal/libtorch/unrecorded.h"
#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

namespace {

// A form and the tensor that it is to pack.
struct ToPack {
  FormPtr form;  // null if the value's bytes are not those that forward computed, or the form is not offered
  size_t place = 0;
  at::Tensor tensor;
};

ToPack to_pack(Value& value, uint8_t form) {
  if (!value.may_be_packed_for_room() || value.changed_outside()) {
    return {};
  }
  const PackedForm& packed = *value.packed_form();
  const std::vector<uint8_t>& numbers = packed.offered->numbers;
  const auto found = std::find(numbers.begin(), numbers.end(), form);
  if (found == numbers.end()) {
    return {};
  }
  // Its last use may have been on another stream than the current one.
  value.set_stream(order_use(value.held_storage(), value.stream()));
  const auto place = static_cast<size_t>(found - numbers.begin());
  return {packed.offered->forms[place], place, packed.meta.over(value.held_storage())};
}

}  // namespace

std::optional<Packed> Tape::pack_for_room(Value* value, uint8_t form, c10::function_ref<bool()> may_pack) {
  ToPack what;
  {
    const Lock locked(*this);
    if (may_pack()) {
      what = to_pack(*value, form);
    }
    if (what.form) {
      locked->lifetimes().ref(value);
    }
  }
  if (!what.form) {
    return std::nullopt;
  }
  const auto unref = [this, value] {
    const Lock locked(*this);
    locked->lifetimes().unref(value);
  };
  c10::IValue packed;
  Packed done;
  try {
    const WithoutPythonLock without;
    observers().tell([&](Observer& observer) { observer.before_pack(*value, what.tensor); });
    const Unrecorded guard;
    const c10::approx_time_t started = c10::getApproximateTime();
    packed = pack_apart(*what.form, what.tensor);
    const auto ticks = static_cast<double>(c10::getApproximateTime() - started);
    const FormInput input = form_input_of(what.tensor);
    done.bytes = bytes_of_tensors_in(packed);
    done.modelled = modelled_packing_cost(*what.form, input);
    // A clock says nothing of a device that runs behind the program.
    done.measured =
        is_asynchronous(what.tensor.device()) ? done.modelled : measured_packing_cost(*what.form, input, ticks);
  } catch (...) {
    unref();
    throw;
  }
  const c10::Storage& storage = what.tensor.storage();
  keep_until_read(storage);  // the form may have read it on another stream than the one that it was made on
  const Lock locked(*this);
  // Another thread may have dropped, pinned or saved the value meanwhile, or a tag have given it another form.
  const bool is_same = value->may_be_packed_for_room() && value->held_storage().is_alias_of(storage);
  const bool frees = !packed.isNone() && done.bytes < value->bytes();
  const bool packs = frees && is_same && may_pack();
  if (packs) {
    locked->kept().hold_in_form(value, std::move(what.form), std::move(packed), done.bytes, current_stream(storage));
  } else if (!frees) {
    locked->kept().refuse_form(value, what.place);
  }
  locked->lifetimes().unref(value);
  return packs ? std::optional(done) : std::nullopt;
}

void Tape::drop_packed(Value* value, c10::function_ref<bool()> is_known) {
  const Lock locked(*this);
  if (is_known()) {
    locked->kept().drop_packed(value);
  }
}

}  // namespace ac2::internal
