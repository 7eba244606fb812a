// The forms in which a value's bytes may be held beside a plain storage: packed, whole, or as a tensor that others
// manage.
//
// Threads: guarded by the tape's lock.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "ac2/form.h"
#include "ac2/internal/graph/value_state.h"
#include "ac2/internal/libtorch/managed_tensors.h"
#include "ac2/internal/libtorch/stream_order.h"
#include "ac2/internal/libtorch/tensor_meta.h"

namespace ac2::internal {

// The forms that scopes offer for values that a budget has no room for. `numbers` are those by which the budget knows
// them (Budget::number_of()).
struct OfferedForms {
  Forms forms;
  std::vector<uint8_t> numbers;
  bool are_exact = true;
  bool host_memory = false;  // may be used too; such a form is not in `forms`
};

// The bytes as a form has packed them, or may pack them. value_state.h has the reasons for that, and the states.
struct PackedForm {
  explicit PackedForm(FormReason reason) : reason_(reason) {}

  FormReason reason() const { return reason_; }
  FormState state() const { return state_; }

  FormPtr form;        // null while forms are only offered
  TensorMeta meta;     // of the tensor that pack is given
  c10::IValue packed;  // the result of pack, while there is one
  int64_t packed_bytes = 0;
  std::shared_ptr<const OfferedForms> offered;  // FormReason::kRoom alone has them
  uint32_t refused = 0;                         // a bit for each of these that did not take the value
  c10::StreamId packed_on = kNoStream;          // the stream whose work pack's was

 private:
  friend class ValueBytes;  // state_

  FormReason reason_;
  FormState state_ = FormState::kNotMade;
};

// A tensor without plain storage, held whole or by its parts.
struct OpaqueForm {
  c10::weak_intrusive_ptr<c10::TensorImpl> origin{c10::intrusive_ptr<c10::TensorImpl>()};
  at::Tensor held;  // while the value has users
  // An alias for `held`, made beforehand where making one calls Python, which must not happen under the tape's lock.
  at::Tensor alias;
  c10::IValue parts;       // in place of `held`, of a tensor that is made of others: SavedTensorHook's hooks on these
  std::string class_name;  // of a class of Python's that does not say of what parts its tensors are made
  uint32_t sample = 0;     // parts_sample() when the region met the tensor
  // Those of `origin`, as long as the value is in the tape's WholeValues.
  c10::SmallVector<c10::weak_intrusive_ptr<c10::StorageImpl>, 3> part_storages;
};

// A storage whose bytes are for others to gather and to let go of; see libtorch/managed_tensors.h. `nbytes` is 0.
struct ManagedForm {
  std::shared_ptr<const ManagedTensor> tensor;
  // Of the tensor when the region met it.
  int64_t storage_offset = 0;
  ManagedLayout layout;
};

using ValueForm = std::variant<PackedForm, OpaqueForm, ManagedForm>;

}  // namespace ac2::internal
