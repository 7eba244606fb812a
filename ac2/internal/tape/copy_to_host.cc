// A tape's part in copying values to the host: a memory budget asks for a copy before there is no room for the value.
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <memory>
#include <utility>

#include "ac2/internal/libtorch/storage_copy.h"
#include "ac2/internal/libtorch/stream_order.h"
#include "ac2/internal/offload/offloaded_value.h"
#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

namespace {

// The value may die before its copy is done.
class OffloadedCopy final : public HostCopy {
 public:
  explicit OffloadedCopy(const c10::intrusive_ptr<OffloadedValue>& offloaded) : offloaded_(offloaded) {}

  bool is_done() override {
    const c10::intrusive_ptr<OffloadedValue> offloaded = offloaded_.lock();
    return !offloaded || offloaded->is_out();
  }
  double bytes_per_cost(const ProgramClock& clock) override {
    const c10::intrusive_ptr<OffloadedValue> offloaded = offloaded_.lock();
    return offloaded ? offloaded->bytes_per_cost(clock) : 0;
  }

 private:
  c10::weak_intrusive_ptr<OffloadedValue> offloaded_;
};

// Null if its bytes are not those that a copy would bring back.
c10::Storage storage_to_copy(Value& value) {
  if (!value.is_held_in_a_storage() || (value.has_form() && !value.may_be_packed_for_room()) ||
      value.changed_outside()) {
    return c10::Storage(c10::intrusive_ptr<c10::StorageImpl>());
  }
  // Its last use may have been on another stream than the current one.
  value.set_stream(order_use(value.held_storage(), value.stream()));
  return value.held_storage();
}

}  // namespace

std::shared_ptr<HostCopy> Tape::copy_to_host(Value* value, const ProgramClock& clock,
                                             c10::function_ref<bool()> may_copy) {
  c10::Storage storage(c10::intrusive_ptr<c10::StorageImpl>{});
  std::shared_ptr<const OffloadForm> form;
  OffloadOptions options;
  {
    const Lock locked(*this);
    if (may_copy()) {
      storage = storage_to_copy(*value);
      form = locked->offloading().form();
      options = locked->offloading().options();
    }
  }
  if (!storage) {
    return nullptr;
  }
  const at::Tensor bytes = as_bytes(storage, storage.nbytes());
  c10::intrusive_ptr<OffloadedValue> offloaded = form->take_out(bytes, options, &clock);
  if (!offloaded) {
    return nullptr;
  }
  auto copy = std::make_shared<OffloadedCopy>(offloaded);
  const Lock locked(*this);
  // Another thread may have dropped the value, or a tag have given it a form, meanwhile.
  if (!may_copy() || (value->has_form() && !value->may_be_packed_for_room()) || !value->is_held_in_a_storage() ||
      !value->held_storage().is_alias_of(storage)) {
    return nullptr;
  }
  PackedForm packed(FormReason::kRoomOnHost);
  packed.form = form;
  packed.meta = TensorMeta(*bytes.unsafeGetTensorImpl());
  locked->bytes().note_host_copy(value, std::move(packed), c10::IValue::make_capsule(std::move(offloaded)));
  return copy;
}

}  // namespace ac2::internal
