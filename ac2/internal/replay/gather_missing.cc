#include "ac2/internal/replay/gather_missing.h"

#include <c10/macros/Macros.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "ac2/internal/libtorch/managed_tensors.h"
#include "ac2/internal/libtorch/unrecorded.h"

namespace ac2::internal {

namespace {

// In the order in which the op takes them, which is the same on all processes.
using MissingParameters = std::vector<std::shared_ptr<const ManagedTensor>>;

void add_if_missing(const Value* value, MissingParameters& missing) {
  const ManagedForm* form = value != nullptr ? value->managed_form() : nullptr;
  if (form != nullptr && form->tensor->is_missing() &&
      std::find(missing.begin(), missing.end(), form->tensor) == missing.end()) {
    missing.push_back(form->tensor);
  }
}

std::vector<at::Tensor> tensors_of(const MissingParameters& missing) {
  std::vector<at::Tensor> tensors;
  for (const std::shared_ptr<const ManagedTensor>& managed : missing) {
    if (auto tensor = managed->tensor.lock()) {
      tensors.emplace_back(std::move(tensor));
    }
  }
  return tensors;
}

// Under no lock: the tensors may be Python's.
void gather(const GatherUnits& gather_units, const MissingParameters& missing, const char* what_was_called) {
  if (missing.empty()) {
    return;
  }
  {
    const Unrecorded unrecorded;
    gather_units(tensors_of(missing));
  }
  for (const std::shared_ptr<const ManagedTensor>& managed : missing) {
    TORCH_CHECK(!managed->is_missing(), "Backward needs the parameter ", managed->name,
                " to compute results of a region again. ", what_was_called,
                ", and the bytes of the parameter are still not there. Save what leaves the parameter's unit "
                "(MUST_SAVE), or gather its parameters before.");
  }
}

// Those that have a gatherer of their own, taken out of `missing`.
MissingParameters take_with_gatherer(MissingParameters& missing) {
  const auto others =
      std::stable_partition(missing.begin(), missing.end(), [](const auto& managed) { return managed->has_gatherer; });
  MissingParameters with_gatherer(missing.begin(), others);
  missing.erase(missing.begin(), others);
  return with_gatherer;
}

// `add` puts what it finds missing into the list that it is given, under the lock.
template <class Add>
void gather_what(Tape& tape, Add&& add) {
  if (C10_LIKELY(!tape.gathers_units() && !any_has_gatherer()) || torch::autograd::get_current_graph_task_id() == -1) {
    return;
  }
  MissingParameters missing;
  std::shared_ptr<const GatherUnits> gather_units;
  {
    const Tape::Lock locked(tape);
    gather_units = locked->gather_units();
    add(missing);
  }
  if (missing.empty()) {
    return;
  }
  gather(gatherer(), take_with_gatherer(missing), "The function that managed_elsewhere() was given has been called");
  if (gather_units != nullptr) {
    gather(*gather_units, missing,
           "The region has called ScopeOptions::gather_units (in Python gather_units=True, which gathers units of "
           "fully_shard() alone)");
  }
}

}  // namespace

void gather_missing(Tape& tape, const Node& node) {
  gather_what(tape, [&](MissingParameters& missing) {
    for (const NodeInput& input : node.inputs) {
      add_if_missing(input.value, missing);
    }
  });
}

void gather_missing(Tape& tape, const Value& value) {
  gather_what(tape, [&](MissingParameters& missing) { add_if_missing(&value, missing); });
}

}  // namespace ac2::internal
