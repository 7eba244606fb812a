#include "ac2/internal/observe/measured_forms.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/ApproximateClock.h>

#include <algorithm>
#include <utility>

#include "ac2/internal/forms/form_access.h"
#include "ac2/internal/forms/packing_cost.h"
#include "ac2/internal/libtorch/for_each_tensor.h"
#include "ac2/internal/libtorch/packed_bytes.h"
#include "ac2/internal/libtorch/python_lock.h"
#include "ac2/internal/libtorch/stream_order.h"
#include "ac2/internal/libtorch/tensor_meta.h"
#include "ac2/internal/libtorch/unrecorded.h"

namespace ac2::internal {

std::optional<StepGraph::FormOfValue> MeasuredForms::measured(const Form& form, const at::Tensor& whole) const {
  const FormInput input = form_input_of(whole);
  if (!form.takes(input)) {
    return std::nullopt;
  }
  StepGraph::FormOfValue found;
  const bool is_timed = costs_ == CostSource::kMeasured && whole.is_cpu() && !is_asynchronous(whole.device());
  const std::optional<FormEstimate> estimate = is_timed ? std::nullopt : checked_estimate(form, input);
  if (estimate) {
    found.bytes = estimate->bytes;
    found.pack_cost = estimate->pack_cost;
    found.unpack_cost = estimate->unpack_cost;
  } else {
    const WithoutPythonLock without;
    const Unrecorded guard;
    const c10::approx_time_t started = c10::getApproximateTime();
    const c10::IValue packed = form.pack(whole);
    const c10::approx_time_t packed_at = c10::getApproximateTime();
    if (packed.isNone()) {
      return std::nullopt;
    }
    found.bytes = bytes_of_tensors_in(packed);
    if (is_timed) {
      form.unpack(packed);
      found.pack_cost = static_cast<double>(packed_at - started);
      found.unpack_cost = static_cast<double>(c10::getApproximateTime() - packed_at);
    } else {
      const PackingCost modelled = modelled_packing_cost(form, input);
      found.pack_cost = modelled.pack;
      found.unpack_cost = modelled.unpack;
    }
  }
  return found.bytes < input.bytes ? std::optional(found) : std::nullopt;
}

void MeasuredForms::measure(const OpContext& op) {
  Results& results = results_[op.index()];
  for_each_tensor(op.outputs(), [&](const at::Tensor& result) {
    if (!result.defined() || !has_plain_storage(result) || result.storage().nbytes() == 0) {
      return;
    }
    const c10::Storage& storage = result.storage();
    const auto [entry, is_new] = results.try_emplace(storage.unsafeGetStorageImpl());
    if (!is_new) {
      return;
    }
    const at::Tensor whole = meta_of_storage(result, storage.nbytes()).over(storage);
    for (size_t i = 0; i < forms_.size(); ++i) {
      if (FormAccess::copied_with(*forms_[i]) != nullptr) {
        continue;
      }
      if (std::optional<StepGraph::FormOfValue> found = measured(*forms_[i], whole)) {
        found->form = static_cast<uint8_t>(i);
        entry->second.push_back(*found);
      }
    }
  });
}

bool MeasuredForms::is_measured(const StepLog& log, const StepGraph& graph, uint32_t op) const {
  const auto results = results_.find(log.indices()[op]);
  return results != results_.end() &&
         std::all_of(graph.ops[op].results.begin(), graph.ops[op].results.end(), [&](uint32_t result) {
           // A result without a storage of its own is held whole, whatever the policy says.
           return log.storages()[result] == nullptr || results->second.contains(log.storages()[result]);
         });
}

void MeasuredForms::mark(const StepLog& log, StepGraph& graph) const {
  for (uint32_t op = 0; op < graph.ops.size(); ++op) {
    if (graph.ops[op].fate != StepGraph::Fate::kOpen || log.decided_within()[op] || !is_measured(log, graph, op)) {
      continue;
    }
    const Results& results = results_.at(log.indices()[op]);
    for (const uint32_t result : graph.ops[op].results) {
      StepGraph::Value& value = graph.values[result];
      const auto found = results.find(log.storages()[result]);
      if (found != results.end() && value.unpacked_bytes == 0) {
        value.forms.insert(value.forms.end(), found->second.begin(), found->second.end());
      }
    }
  }
}

}  // namespace ac2::internal
