// The form of files: what a SpillWriter writes and reads back.
//
//   const auto form = std::make_shared<const FileForm>(writer, "file /scratch", "aten::mm");
//
// Threads: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "ac2/internal/forms/form_access.h"
#include "policies/internal/spill/spill_writer.h"

namespace ac2::policies::internal {

class FileForm final : public ac2::internal::HarmlessForm {
 public:
  // Where a file cannot grow: an error, or the tensor is not taken, which is said once.
  enum class WhenFull : uint8_t { kThrow, kDecline };

  // `op`: of whose results errors speak. Tensors of fewer than `min_bytes` are not taken.
  FileForm(std::shared_ptr<SpillWriter> writer, std::string name, std::string op, WhenFull when_full,
           int64_t min_bytes = 0)
      : writer_(std::move(writer)),
        name_(std::move(name)),
        op_(std::move(op)),
        when_full_(when_full),
        min_bytes_(min_bytes) {}

  std::string name() const override { return name_; }
  bool is_exact() const override { return true; }
  bool takes(const FormInput& tensor) const override { return tensor.bytes >= min_bytes_; }
  c10::IValue pack(const at::Tensor& tensor) const override;
  at::Tensor unpack(const c10::IValue& packed) const override;

 private:
  // An error, or None.
  c10::IValue not_written(const std::string& why) const;

  const std::shared_ptr<SpillWriter> writer_;
  const std::string name_;
  const std::string op_;
  const WhenFull when_full_;
  const int64_t min_bytes_;
  mutable std::atomic<bool> said_{false};
};

}  // namespace ac2::policies::internal
