#include "ac2/internal/following/plan_follower.h"

#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>

#include <string>
#include <utility>

#include "ac2/internal/libtorch/for_each_tensor.h"
#include "ac2/internal/libtorch/tensor_bytes.h"
#include "ac2/internal/libtorch/warn_in_op.h"
#include "ac2/internal/policy_names/plan_policy.h"
#include "ac2/policy_instance.h"

namespace ac2::internal {

namespace {

// The way of a region along a plan.
class PlanFollower {
 public:
  explicit PlanFollower(std::shared_ptr<const PlannedStep> plan) : plan_(std::move(plan)) {}

  PolicyDecision operator()(const OpContext& op) {
    if (lost_) {
      return CheckpointPolicy::PREFER_SAVE;
    }
    const auto index = static_cast<size_t>(op.index());
    const PlannedCall* call = index < plan_->calls.size() && plan_->calls[index] ? &*plan_->calls[index] : nullptr;
    const int64_t bytes = bytes_of(op.outputs());
    if (call != nullptr && call->op == op.op() && call->result_bytes == bytes) {
      if (!plan_->forms.empty() && plan_->in_form[index] != PlannedStep::kInNoForm) {
        return plan_->forms[plan_->in_form[index]];
      }
      return plan_->decisions[index] == CheckpointPolicy::MUST_CPU_OFFLOAD ? copied(op) : plan_->decisions[index];
    }
    lost_ = true;
    if (!plan_->warned.exchange(true)) {
      const std::string planned = call != nullptr ? c10::str(c10::toString(call->op.operator_name()),
                                                             " with results of ", call->result_bytes, " bytes was")
                                                  : "nothing was";
      warn_in_op(c10::str(
          "ac2::plan: the program is not the one that was planned: op ", index, " of its region is ",
          c10::toString(op.op().operator_name()), " with results of ", bytes, " bytes, where ", planned,
          " planned. The rest of the region keeps within the plan's ", plan_->bytes,
          " bytes by dropping results as it goes. Plan again for the program as it is now, and open the scope "
          "where the planned step began. (In C++ zero_grad() in a step runs ops only once there are gradients: plan "
          "after a first step.) This is said once for each plan."));
    }
    return CheckpointPolicy::PREFER_SAVE;
  }

 private:
  PolicyDecision copied(const OpContext& op) const {
    // An op that writes into its arguments need not return them.
    bool on_a_device = false;
    for (const c10::ArrayRef<c10::IValue> values : {op.outputs(), op.inputs()}) {
      for_each_tensor(values, [&](const at::Tensor& tensor) {
        on_a_device |= tensor.defined() && !tensor.is_cpu() && !tensor.is_meta();
      });
    }
    if (on_a_device) {
      return CheckpointPolicy::MUST_CPU_OFFLOAD;
    }
    if (!plan_->warned_of_no_device.exchange(true)) {
      warn_in_op(c10::str(
          "ac2::plan: the plan copies the result of op ", op.index(), " of the region, ",
          c10::toString(op.op().operator_name()),
          ", to the host's memory, but the result is not on a device that has one behind it. Such results stay "
          "where they are, and are dropped as the plan's ",
          plan_->bytes, " bytes demand. This is said once for each plan."));
    }
    return CheckpointPolicy::PREFER_SAVE;
  }

  std::shared_ptr<const PlannedStep> plan_;
  bool lost_ = false;
};

}  // namespace

Policy follow(std::shared_ptr<const PlannedStep> plan) {
  return policy_of_plan(plan, [plan] {
    PolicyInstance instance;
    instance.fn = PlanFollower(plan);
    instance.may_drop_tensors = false;
    instance.is_inexact = plan->is_inexact;
    return instance;
  });
}

}  // namespace ac2::internal
