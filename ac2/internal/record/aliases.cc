#include "ac2/internal/record/aliases.h"

#include <ATen/Utils.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/SmallVector.h>

#include <utility>

#include "ac2/internal/libtorch/foreign_memory.h"
#include "ac2/internal/record/unrecorded_write.h"
#include "ac2/internal/tape/live_tapes.h"

namespace ac2::internal {

at::Tensor alias_of(const Value& value, c10::StorageImpl& written) {
  if (value.is_foreign() || !value.original_is_alive() || value.changed_outside()) {
    return {};
  }
  c10::StorageImpl* storage = value.original_address();
  if (storage == &written || !share_addresses(written, *storage)) {
    return {};
  }
  c10::intrusive_ptr<c10::StorageImpl> alive = value.lock_original();
  return alive == nullptr ? at::Tensor()
                          : at::detail::make_tensor<c10::TensorImpl>(c10::Storage(std::move(alive)),
                                                                     c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                                     caffe2::TypeMeta::Make<uint8_t>());
}

void tell_of_write_to_aliases(const at::Tensor& tensor, const Tape* except) {
  c10::StorageImpl& written = *tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  for_each_live_tape([&](Tape& tape) {
    if (&tape == except) {
      return;
    }
    c10::SmallVector<at::Tensor, 1> aliases;
    {
      const Tape::Lock locked(tape);
      const auto note = [&](const Value* value) {
        if (at::Tensor alias = alias_of(*value, written); alias.defined()) {
          aliases.push_back(std::move(alias));
        }
      };
      if (locked->is_closed()) {
        locked->shared().for_each(note);
      } else {
        locked->storages().for_each(note);
      }
    }
    for (const at::Tensor& alias : aliases) {
      const UnrecordedWrite write(tape, alias, IsCounted::kNo);
    }
  });
}

}  // namespace ac2::internal
