#include "ac2/internal/record/typed_writes.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/addcdiv_ops.h>
#include <ATen/ops/addcmul_ops.h>
#include <ATen/ops/bernoulli_ops.h>
#include <ATen/ops/clamp_min_ops.h>
#include <ATen/ops/clamp_ops.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/exp_ops.h>
#include <ATen/ops/fill_ops.h>
#include <ATen/ops/index_put_ops.h>
#include <ATen/ops/lerp_ops.h>
#include <ATen/ops/masked_fill_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/neg_ops.h>
#include <ATen/ops/normal_ops.h>
#include <ATen/ops/pow_ops.h>
#include <ATen/ops/reciprocal_ops.h>
#include <ATen/ops/relu_ops.h>
#include <ATen/ops/sigmoid_ops.h>
#include <ATen/ops/sqrt_ops.h>
#include <ATen/ops/sub_ops.h>
#include <ATen/ops/tanh_ops.h>
#include <ATen/ops/uniform_ops.h>
#include <ATen/ops/zero_ops.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <string>

#include "ac2/internal/libtorch/torch_compat.h"
#include "ac2/internal/operators/op_facts.h"
#include "ac2/internal/record/watched_write.h"

namespace ac2::internal {

namespace {

template <class... Ops>
struct WriteOps {};
namespace op = at::_ops;
using TypedWrites =
    WriteOps<op::add__Scalar, op::add__Tensor, op::addcdiv_, op::addcmul_, op::bernoulli__float, op::clamp_,
             op::clamp_min_, op::copy_, op::div__Scalar, op::div__Tensor, op::exp_, op::fill__Scalar, op::fill__Tensor,
             op::index_put_, op::lerp__Scalar, op::lerp__Tensor, op::masked_fill__Scalar, op::mul__Scalar,
             op::mul__Tensor, op::neg_, op::normal_, op::pow__Scalar, op::reciprocal_, op::relu_, op::sigmoid_,
             op::sqrt_, op::sub__Scalar, op::sub__Tensor, op::tanh_, op::uniform_, op::zero_>;

template <class Op, class Signature = typename Op::schema>
struct WriteKernel;

template <class Op, class... Args>
struct WriteKernel<Op, at::Tensor&(at::Tensor&, Args...)> {
  static at::Tensor& call(c10::DispatchKeySet keys, at::Tensor& self, Args... args) {
    const c10::DispatchKeySet below = keys & kBelowWatchKey;
    if (!WatchedWrite::are_needed()) {
      return Op::redispatch(below, self, args...);
    }
    const WatchedWrite write(Op::name, self);
    Op::redispatch(below, self, args...);
    write.ran();
    return self;
  }
};

template <class Op>
void register_write(torch::Library& library) {
  const OpFacts& facts = op_facts(c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, Op::overload_name));
  TORCH_INTERNAL_ASSERT(facts.written.size() == 1 && facts.written[0] == 0 && !facts.writes_metadata_only &&
                            facts.written_only_if < 0 && !facts.is_composite,
                        facts.name, " cannot have a typed kernel");
  library.impl(facts.name.c_str(), torch::CppFunction(&WriteKernel<Op>::call));
}

template <class... Ops>
void register_writes(torch::Library& library, WriteOps<Ops...>) {
  (register_write<Ops>(library), ...);
}

}  // namespace

void register_typed_writes() {
  // Leaked: ops may run during static destruction.
  static auto* library = new torch::Library(torch::Library::IMPL, "aten", kWatchKey, __FILE__, __LINE__);
  register_writes(*library, TypedWrites());
}

}  // namespace ac2::internal
