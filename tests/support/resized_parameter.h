// A parameter whose bytes come and go as those of a unit of FSDP's: its storage is resized to nothing and back.
//
//   ResizedParameter weight(constant({8, 8}));   // its bytes are there
//   weight.let_go();
//   weight.gather();
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <cstring>
#include <string>
#include <utility>

#include "ac2/internal/libtorch/managed_tensors.h"

namespace ac2::test {

class ResizedParameter {
 public:
  explicit ResizedParameter(at::Tensor shard, std::string name = "weight (of unit 0)") : shard_(std::move(shard)) {
    parameter_ = at::empty(shard_.sizes()).requires_grad_();
    internal::manage_storage(parameter_, std::move(name));
    gather();
  }
  void gather() {
    const at::NoGradGuard no_grad;
    resize(shard_.nbytes());
    std::memcpy(parameter_.mutable_data_ptr(), shard_.const_data_ptr(), shard_.nbytes());
  }
  void let_go() { resize(0); }
  const at::Tensor& parameter() const { return parameter_; }
  at::Tensor plain() const { return shard_.clone().requires_grad_(); }

 private:
  void resize(size_t bytes) {
    const c10::Storage& storage = parameter_.storage();
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(storage.allocator()->allocate(bytes));
    storage.unsafeGetStorageImpl()->set_nbytes(bytes);
  }

  at::Tensor shard_;
  at::Tensor parameter_;
};

}  // namespace ac2::test
