#include "ac2/internal/forms/pack_apart.h"

#include <c10/core/Storage.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "ac2/internal/forms/functions_form.h"
#include "ac2/internal/forms/packing_cost.h"
#include "ac2/internal/libtorch/packed_bytes.h"
#include "ac2/internal/libtorch/storage_copy.h"
#include "ac2/internal/libtorch/tensor_meta.h"
#include "ac2/internal/libtorch/torch_compat.h"

namespace ac2::internal {

namespace {

bool overlap(const c10::Storage& a, const c10::Storage& b) {
  if (a.is_alias_of(b)) {
    return true;
  }
  const auto* first = static_cast<const char*>(a.data());
  const auto* second = static_cast<const char*>(b.data());
  const std::less<const char*> before;
  return a.device() == b.device() && first != nullptr && second != nullptr && before(first, second + b.nbytes()) &&
         before(second, first + a.nbytes());
}

bool shows_memory_of(const c10::IValue& packed, const at::Tensor& tensor) {
  bool shows = false;
  for_each_storage(packed, [&](const c10::Storage& storage) { shows |= overlap(storage, tensor.storage()); });
  return shows;
}

// Whether there may be tensors in it that for_each_storage() does not visit. What lies deeper than a list or tuple is
// taken for hidden.
bool hides_tensors(const c10::IValue& packed) {
  const auto is_seen = [](const c10::IValue& value) {
    return value.isTensor() || value.isNone() || value.isScalar() || value.isString() || value.isDevice();
  };
  if (packed.isTuple()) {
    const auto& elements = packed.toTupleRef().elements();
    return !std::all_of(elements.begin(), elements.end(), is_seen);
  }
  return !packed.isTensorList() && !is_seen(packed);
}

// An object that Python has made for the tensor, and that nobody refers to any more, is no reference.
size_t references_to(const at::Tensor& tensor) {
  const size_t idle = is_used_by_idle_python_object(*tensor.unsafeGetTensorImpl()) ? 1 : 0;
  return tensor.use_count() - idle + tensor.storage().use_count();
}

// Inference tensors have no version.
uint32_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : tensor.unsafeGetTensorImpl()->version_counter().current_version();
}

c10::IValue pack_unchanged(const Form& form, const at::Tensor& tensor) {
  const uint32_t version = version_of(tensor);
  c10::IValue packed = form.pack(tensor);
  TORCH_CHECK(version_of(tensor) == version, "The pack function of ", described(form),
              " has written to the tensor of shape ", tensor.sizes(),
              " that it was given, which the program and other ops have too. Write to a clone() of the tensor.");
  return packed;
}

// Undefined where the tensor has more to it than elements in a storage.
at::Tensor copy_of(const at::Tensor& tensor) {
  if (!has_plain_storage(tensor)) {
    return {};
  }
  const c10::Storage& storage = tensor.storage();
  return TensorMeta(*tensor.unsafeGetTensorImpl()).over(copy_storage(storage, storage.nbytes()));
}

// The same with copies of the tensors that show memory of `tensor`, as far as they are seen.
c10::IValue with_copies(c10::IValue packed, const at::Tensor& tensor) {
  const auto apart = [&tensor](const c10::IValue& value) {
    const bool shows = value.isTensor() && value.toTensor().defined() && shows_memory_of(value, tensor);
    const at::Tensor copy = shows ? copy_of(value.toTensor()) : at::Tensor();
    return copy.defined() ? c10::IValue(copy) : value;
  };
  if (packed.isTuple()) {
    std::vector<c10::IValue> elements;
    for (const c10::IValue& element : packed.toTupleRef().elements()) {
      elements.push_back(apart(element));
    }
    return c10::ivalue::Tuple::create(std::move(elements));
  }
  if (packed.isTensorList()) {
    c10::List<at::Tensor> copies;
    for (const at::Tensor& element : packed.toTensorVector()) {
      copies.push_back(apart(element).toTensor());
    }
    return copies;
  }
  return apart(packed);
}

}  // namespace

c10::IValue pack_apart(const Form& form, const at::Tensor& tensor) {
  if (!form.takes(form_input_of(tensor))) {
    return {};
  }
  const size_t references = references_to(tensor);
  {
    c10::IValue packed = pack_unchanged(form, tensor);
    if (tensor.is_meta()) {
      return packed;
    }
    bool shares = shows_memory_of(packed, tensor);
    if (shares) {
      packed = with_copies(std::move(packed), tensor);
      shares = shows_memory_of(packed, tensor);
    }
    if (!shares && !(hides_tensors(packed) && references_to(tensor) > references)) {
      return packed;
    }
  }
  return pack_unchanged(form, copy_of(tensor));
}

}  // namespace ac2::internal
