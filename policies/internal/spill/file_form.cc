#include "policies/internal/spill/file_form.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>

#include <system_error>

#include "ac2/internal/libtorch/warn_in_op.h"
#include "policies/internal/common/dense_layout.h"

namespace ac2::policies::internal {

namespace {

// The object that a graph holds in place of a spilled tensor.
class Spilled final : public torch::CustomClassHolder {
 public:
  Spilled(std::shared_ptr<SpillWriter> writer, const at::Tensor& dense, const std::string& op)
      : writer_(std::move(writer)), layout_(layout_of(dense)), tensor_(writer_->write(dense.cpu(), op)) {}
  ~Spilled() override { writer_->forget(*tensor_); }
  Spilled(const Spilled&) = delete;
  Spilled& operator=(const Spilled&) = delete;

  at::Tensor read() const {
    const at::Tensor result = empty_of(layout_);
    if (result.is_cpu()) {
      writer_->read(*tensor_, result);
      return result;
    }
    const at::Tensor on_cpu = at::empty_like(result, at::TensorOptions(at::kCPU));
    writer_->read(*tensor_, on_cpu);
    return result.copy_(on_cpu);
  }

 private:
  std::shared_ptr<SpillWriter> writer_;
  c10::IValue layout_;
  std::shared_ptr<SpilledTensor> tensor_;
};

}  // namespace

c10::IValue FileForm::pack(const at::Tensor& tensor) const {
  const at::Tensor dense = densely(tensor);
  // A plan's meta tensors have no bytes.
  if (dense.is_meta()) {
    return layout_of(dense);
  }
  try {
    return c10::IValue::make_capsule(c10::make_intrusive<Spilled>(writer_, dense, op_));
  } catch (const c10::Error& error) {
    return not_written(error.what_without_backtrace());
  } catch (const std::system_error& error) {
    return not_written(c10::str("the thread that writes cannot be started (", error.what(), ")."));
  }
}

c10::IValue FileForm::not_written(const std::string& why) const {
  TORCH_CHECK(when_full_ == WhenFull::kDecline, why);
  if (!said_.exchange(true)) {
    ac2::internal::warn_in_op(c10::str(
        "The form \"", name_, "\" cannot write a value, which is held in another way or computed again instead: ", why,
        " This is said once for a form."));
  }
  return {};
}

at::Tensor FileForm::unpack(const c10::IValue& packed) const {
  if (!packed.isCapsule()) {
    return empty_of(packed);
  }
  return c10::static_intrusive_pointer_cast<Spilled>(packed.toCapsule())->read();
}

}  // namespace ac2::policies::internal
