#include "ac2/internal/record/resting_kernels.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_local_scalar_dense_ops.h>
#include <ATen/ops/_to_copy_ops.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/addcdiv_ops.h>
#include <ATen/ops/addcmul_ops.h>
#include <ATen/ops/alias_ops.h>
#include <ATen/ops/all_ops.h>
#include <ATen/ops/any_ops.h>
#include <ATen/ops/argmax_ops.h>
#include <ATen/ops/as_strided_ops.h>
#include <ATen/ops/bernoulli_ops.h>
#include <ATen/ops/cat_ops.h>
#include <ATen/ops/clamp_min_ops.h>
#include <ATen/ops/clamp_ops.h>
#include <ATen/ops/clone_ops.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/cumsum_ops.h>
#include <ATen/ops/detach_ops.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/empty_ops.h>
#include <ATen/ops/empty_strided_ops.h>
#include <ATen/ops/eq_ops.h>
#include <ATen/ops/exp_ops.h>
#include <ATen/ops/expand_ops.h>
#include <ATen/ops/fill_ops.h>
#include <ATen/ops/ge_ops.h>
#include <ATen/ops/gt_ops.h>
#include <ATen/ops/index_ops.h>
#include <ATen/ops/index_put_ops.h>
#include <ATen/ops/le_ops.h>
#include <ATen/ops/lerp_ops.h>
#include <ATen/ops/lt_ops.h>
#include <ATen/ops/masked_fill_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/ne_ops.h>
#include <ATen/ops/neg_ops.h>
#include <ATen/ops/normal_ops.h>
#include <ATen/ops/permute_ops.h>
#include <ATen/ops/pow_ops.h>
#include <ATen/ops/reciprocal_ops.h>
#include <ATen/ops/relu_ops.h>
#include <ATen/ops/select_ops.h>
#include <ATen/ops/sigmoid_ops.h>
#include <ATen/ops/slice_ops.h>
#include <ATen/ops/sqrt_ops.h>
#include <ATen/ops/squeeze_ops.h>
#include <ATen/ops/stack_ops.h>
#include <ATen/ops/sub_ops.h>
#include <ATen/ops/t_ops.h>
#include <ATen/ops/tanh_ops.h>
#include <ATen/ops/transpose_ops.h>
#include <ATen/ops/uniform_ops.h>
#include <ATen/ops/unsqueeze_ops.h>
#include <ATen/ops/view_ops.h>
#include <ATen/ops/zero_ops.h>
#include <torch/library.h>

#include <string>

#include "ac2/internal/libtorch/python_dispatch.h"
#include "ac2/internal/libtorch/torch_compat.h"
#include "ac2/internal/region/resting.h"
#include "ac2/internal/replay/replay_call.h"

namespace ac2::internal {

namespace {

template <class... Ops>
struct RestingOpList {};
namespace op = at::_ops;
using RestingOps = RestingOpList<
    op::_local_scalar_dense, op::_to_copy, op::add__Scalar, op::add__Tensor, op::addcdiv_, op::addcmul_, op::alias,
    op::all, op::any, op::argmax, op::as_strided, op::bernoulli__float, op::cat, op::clamp_, op::clamp_min_, op::clone,
    op::copy_, op::cumsum, op::detach, op::div__Scalar, op::div__Tensor, op::empty_memory_format, op::empty_strided,
    op::eq_Scalar, op::eq_Tensor, op::exp_, op::expand, op::fill__Scalar, op::fill__Tensor, op::ge_Scalar,
    op::ge_Tensor, op::gt_Scalar, op::gt_Tensor, op::index_put_, op::index_Tensor, op::le_Scalar, op::le_Tensor,
    op::lerp__Scalar, op::lerp__Tensor, op::lt_Scalar, op::lt_Tensor, op::masked_fill__Scalar, op::mul__Scalar,
    op::mul__Tensor, op::ne_Scalar, op::ne_Tensor, op::neg_, op::normal_, op::permute, op::pow__Scalar, op::reciprocal_,
    op::relu_, op::select_int, op::sigmoid_, op::slice_Tensor, op::sqrt_, op::squeeze_dim, op::stack, op::sub__Scalar,
    op::sub__Tensor, op::t, op::tanh_, op::transpose_int, op::uniform_, op::unsqueeze, op::view, op::zero_>;

BoxedInterceptor boxed_fallback = nullptr;

void call_fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  boxed_fallback(op, keys, stack);
}

template <class Op, class Signature = typename Op::schema>
struct RestingKernel;

template <class Op, class Result, class... Args>
struct RestingKernel<Op, Result(Args...)> {
  static const c10::OperatorHandle& op() {
    static const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, Op::overload_name);
    return op;
  }

  static Result call(c10::DispatchKeySet keys, Args... args) {
    if (is_resting() && !is_replaying() && !goes_to_python(keys)) {
      return Op::redispatch(keys & kBelowRecordKey, args...);
    }
    // As the dispatcher calls the fallback.
    static const c10::BoxedKernel boxed = c10::BoxedKernel::makeFromFunction<&call_fallback>();
    return c10::impl::BoxedKernelWrapper<Result(Args...)>::call(boxed, op(), keys, args...);
  }
};

template <class... Ops>
void register_resting(torch::Library& library, RestingOpList<Ops...>) {
  (library.impl(c10::toString(RestingKernel<Ops>::op().operator_name()).c_str(),
                torch::CppFunction(&RestingKernel<Ops>::call)),
   ...);
}

}  // namespace

void register_resting_kernels(BoxedInterceptor boxed) {
  boxed_fallback = boxed;
  // Leaked, as the fallback.
  static auto* library = new torch::Library(torch::Library::IMPL, "aten", kRecordKey, __FILE__, __LINE__);
  register_resting(*library, RestingOps());
}

}  // namespace ac2::internal
