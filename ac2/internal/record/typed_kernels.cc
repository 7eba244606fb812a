#include "ac2/internal/record/typed_kernels.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_log_softmax_ops.h>
#include <ATen/ops/_softmax_ops.h>
#include <ATen/ops/abs_ops.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/clamp_min_ops.h>
#include <ATen/ops/clamp_ops.h>
#include <ATen/ops/cos_ops.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/erf_ops.h>
#include <ATen/ops/exp_ops.h>
#include <ATen/ops/gelu_ops.h>
#include <ATen/ops/hardtanh_ops.h>
#include <ATen/ops/leaky_relu_ops.h>
#include <ATen/ops/log1p_ops.h>
#include <ATen/ops/log_ops.h>
#include <ATen/ops/maximum_ops.h>
#include <ATen/ops/mean_ops.h>
#include <ATen/ops/minimum_ops.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/neg_ops.h>
#include <ATen/ops/pow_ops.h>
#include <ATen/ops/reciprocal_ops.h>
#include <ATen/ops/relu_ops.h>
#include <ATen/ops/rsqrt_ops.h>
#include <ATen/ops/rsub_ops.h>
#include <ATen/ops/sigmoid_ops.h>
#include <ATen/ops/silu_ops.h>
#include <ATen/ops/sin_ops.h>
#include <ATen/ops/softplus_ops.h>
#include <ATen/ops/sqrt_ops.h>
#include <ATen/ops/sub_ops.h>
#include <ATen/ops/sum_ops.h>
#include <ATen/ops/tanh_ops.h>
#include <ATen/ops/where_ops.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <string>
#include <utility>

#include "ac2/internal/budget/budget.h"
#include "ac2/internal/budget/call_with_room.h"
#include "ac2/internal/libtorch/out_of_memory.h"
#include "ac2/internal/libtorch/python_dispatch.h"
#include "ac2/internal/libtorch/torch_compat.h"
#include "ac2/internal/record/borrowed_arguments.h"
#include "ac2/internal/record/recording.h"
#include "ac2/internal/region/resting.h"
#include "ac2/internal/replay/replay_call.h"

namespace ac2::internal {

namespace {

// Functional ops of one tensor result that are called often on small tensors. None that writes, draws or makes a view:
// record_call() knows about those. register_typed_kernels() checks it.
template <class... Ops>
struct OpList {};
namespace op = at::_ops;
using TypedOps = OpList<op::abs, op::cos, op::erf, op::exp, op::log, op::log1p, op::neg, op::reciprocal, op::relu,
                        op::rsqrt, op::sigmoid, op::silu, op::sin, op::sqrt, op::tanh, op::gelu, op::hardtanh,
                        op::leaky_relu, op::softplus, op::clamp, op::clamp_min, op::add_Tensor, op::add_Scalar,
                        op::sub_Tensor, op::rsub_Scalar, op::mul_Tensor, op::mul_Scalar, op::div_Tensor, op::div_Scalar,
                        op::pow_Tensor_Scalar, op::maximum, op::minimum, op::where_self, op::sum_dim_IntList, op::mean,
                        op::mean_dim, op::_softmax, op::_log_softmax, op::mm, op::bmm, op::addmm>;

BoxedInterceptor boxed_interceptor = nullptr;

c10::OperatorHandle find_op(const char* name, const char* overload) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
}

// The region, if all there is to do is to run the op and write it down.
Region* region_of_plain_call() {
  ThreadRegions& regions = ThreadRegions::here();
  Region* region = is_replaying() || regions.is_within_op() ? nullptr : regions.recording();
  return region == nullptr || !region->tape->observers().empty() ? nullptr : region;
}

template <class Op, class Signature = typename Op::schema>
struct Kernel;

template <class Op, class... Args>
struct Kernel<Op, at::Tensor(Args...)> {
  static const OpFacts& facts() {
    static const OpFacts& facts = op_facts(find_op(Op::name, Op::overload_name));
    return facts;
  }

  static at::Tensor call(c10::DispatchKeySet keys, Args... args) {
    if (is_resting() && !is_replaying() && !goes_to_python(keys)) {
      return Op::redispatch(keys & kBelowRecordKey, args...);
    }
    Region* region = goes_to_python(keys) ? nullptr : region_of_plain_call();
    if (region == nullptr) {
      torch::jit::Stack stack;
      torch::jit::push(stack, args...);
      boxed_interceptor(facts().op, keys, &stack);
      return std::move(stack.back()).toTensor();
    }
    const c10::DispatchKeySet below = keys & kBelowRecordKey;
    const c10::impl::PODLocalDispatchKeySet tls_keys = c10::impl::raw_local_dispatch_key_set;
    const c10::impl::ExcludeDispatchKeyGuard guard(kRecordKey);
    BorrowedArguments<sizeof...(Args)> arguments(args...);
    if (region->tape->next_op_may_free()) {
      arguments.own();
    }
    Recording recording(*region, facts(), below, tls_keys, region->tape->next_op(), arguments.values());
    if (recording.asks_policies()) {
      arguments.own();
    }
    const auto run_op = [&] { return c10::IValue(Op::redispatch(below, args...)); };
    const auto run_again = [&] { return run_boxed(below, arguments.values()); };
    return with_out_of_memory_note(
        [&] {
          return recording
              .run(/*watch=*/nullptr,
                   [&] {
                     return call_with_room(
                         recording.budget(), run_op, [&] { arguments.own(); }, run_again);
                   })
              .toTensor();
        },
        [&] { return FailedCall{.op = facts().name, .arguments = arguments.values()}; });
  }

  // Values that are dropped to make room may drop the tensors that `args` of call() refer to.
  static c10::IValue run_boxed(c10::DispatchKeySet keys, c10::ArrayRef<c10::IValue> arguments) {
    torch::jit::Stack stack(arguments.begin(), arguments.end());
    facts().op.redispatchBoxed(keys, &stack);
    return std::move(stack.back());
  }
};

template <class Op>
void register_kernel(torch::Library& library) {
  const OpFacts& facts = Kernel<Op>::facts();
  TORCH_INTERNAL_ASSERT(
      !facts.is_view && !facts.draws && !facts.never_recompute && facts.written.empty() && facts.num_returns == 1,
      facts.name, " cannot have a typed kernel");
  library.impl(facts.name.c_str(), torch::CppFunction(&Kernel<Op>::call));
}

template <class... Ops>
void register_all(torch::Library& library, OpList<Ops...>) {
  (register_kernel<Ops>(library), ...);
}

}  // namespace

void register_typed_kernels(BoxedInterceptor boxed) {
  boxed_interceptor = boxed;
  // Leaked, as the fallback.
  static auto* library = new torch::Library(torch::Library::IMPL, "aten", kRecordKey, __FILE__, __LINE__);
  register_all(*library, TypedOps());
}

}  // namespace ac2::internal
