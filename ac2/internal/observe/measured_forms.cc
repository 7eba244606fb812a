#include "ac2/internal/observe/measured_forms.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/ApproximateClock.h>

#include <algorithm>
#include <utility>

#include "ac2/internal/libtorch/for_each_tensor.h"
#include "ac2/internal/libtorch/packed_bytes.h"
#include "ac2/internal/libtorch/python_lock.h"
#include "ac2/internal/libtorch/stream_order.h"
#include "ac2/internal/libtorch/tensor_meta.h"
#include "ac2/internal/libtorch/unrecorded.h"
#include "ac2/internal/operators/cost_model.h"

namespace ac2::internal {

void MeasuredForms::measure(const OpContext& op) {
  Forms& forms = forms_[op.index()];
  for_each_tensor(op.outputs(), [&](const at::Tensor& result) {
    if (!result.defined() || !has_plain_storage(result) || result.storage().nbytes() == 0) {
      return;
    }
    const c10::Storage& storage = result.storage();
    const auto [entry, is_new] = forms.try_emplace(storage.unsafeGetStorageImpl());
    if (!is_new) {
      return;
    }
    const at::Tensor whole = meta_of_storage(result, storage.nbytes()).over(storage);
    const WithoutPythonLock without;
    const Unrecorded guard;
    const c10::approx_time_t started = c10::getApproximateTime();
    const c10::IValue packed = functions_->pack(whole);
    const auto ticks = static_cast<double>(c10::getApproximateTime() - started);
    const bool is_timed = storage.device().is_cpu() && !is_asynchronous(storage.device());
    entry->second = {.bytes = packed.isNone() ? static_cast<int64_t>(storage.nbytes()) : bytes_of_tensors_in(packed),
                     .ticks = is_timed ? ticks : 0};
  });
}

bool MeasuredForms::is_measured(const StepLog& log, const StepGraph& graph, uint32_t op) const {
  const auto forms = forms_.find(log.indices()[op]);
  return forms != forms_.end() &&
         std::all_of(graph.ops[op].results.begin(), graph.ops[op].results.end(), [&](uint32_t result) {
           // A result without a storage of its own is held whole, whatever the policy says.
           return log.storages()[result] == nullptr || forms->second.contains(log.storages()[result]);
         });
}

void MeasuredForms::mark(const StepLog& log, StepGraph& graph) const {
  for (uint32_t op = 0; op < graph.ops.size(); ++op) {
    if (graph.ops[op].fate != StepGraph::Fate::kOpen || log.decided_within()[op] || !is_measured(log, graph, op)) {
      continue;
    }
    const Forms& forms = forms_.at(log.indices()[op]);
    for (const uint32_t result : graph.ops[op].results) {
      StepGraph::Value& value = graph.values[result];
      const auto form = forms.find(log.storages()[result]);
      if (form != forms.end() && value.unpacked_bytes == 0) {
        const bool is_timed = log.costs() == CostSource::kMeasured && form->second.ticks > 0;
        value.narrows = true;
        value.narrow_bytes = form->second.bytes;
        value.narrow_cost =
            is_timed ? 2 * form->second.ticks : modelled_cost_of_packing(static_cast<double>(value.bytes));
      }
    }
  }
}

}  // namespace ac2::internal
