#include "policies/spill_to_file.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>

#include <memory>
#include <utility>

#include "policies/internal/common/dense_layout.h"
#include "policies/internal/common/pack_ops.h"
#include "policies/internal/spill/spill_writer.h"

namespace ac2::policies {

namespace {

using internal::SpilledTensor;
using internal::SpillWriter;

// The object that a graph holds in place of a spilled tensor.
class Spilled final : public torch::CustomClassHolder {
 public:
  Spilled(std::shared_ptr<SpillWriter> writer, const at::Tensor& dense, const std::string& op)
      : writer_(std::move(writer)), layout_(internal::layout_of(dense)), tensor_(writer_->write(dense.cpu(), op)) {}
  ~Spilled() override { writer_->forget(*tensor_); }
  Spilled(const Spilled&) = delete;
  Spilled& operator=(const Spilled&) = delete;

  at::Tensor read() const {
    const at::Tensor result = internal::empty_of(layout_);
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

SaveWithHooks hooks_for(const std::shared_ptr<SpillWriter>& writer, const std::string& op) {
  const auto pack = [writer, op](const at::Tensor& tensor) -> c10::IValue {
    const at::Tensor dense = internal::densely(tensor);
    // A plan's meta tensors have no bytes.
    if (dense.is_meta()) return internal::layout_of(dense);
    return c10::IValue::make_capsule(c10::make_intrusive<Spilled>(writer, dense, op));
  };
  const auto unpack = [](const c10::IValue& packed) {
    if (!packed.isCapsule()) return internal::empty_of(packed);
    return c10::static_intrusive_pointer_cast<Spilled>(packed.toCapsule())->read();
  };
  return {pack, unpack};
}

}  // namespace

Policy spill_to_file(const std::string& directory, const std::vector<std::string>& ops, SpillOptions options) {
  TORCH_CHECK(!directory.empty(),
              "spill_to_file was given \"\" as its directory; expected the path of one in which this process "
              "may write.");
  TORCH_CHECK(options.queue_bytes >= 0, "spill_to_file was given a queue of ", options.queue_bytes,
              " bytes; expected 0 (each result is written before its op returns) or more.");
  TORCH_CHECK(options.file_bytes > 0, "spill_to_file was given files of ", options.file_bytes,
              " bytes; expected 1 or more.");
  const auto writer = std::make_shared<SpillWriter>(directory, options.queue_bytes, options.file_bytes);
  return internal::pack_ops("spill_to_file", ops, /*is_inexact=*/false,
                            [writer] { return [writer](const std::string& op) { return hooks_for(writer, op); }; });
}

}  // namespace ac2::policies
