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

// Under no lock: the tensors may be Python's.
void gather(const GatherUnits& gather_units, const MissingParameters& missing) {
  std::vector<at::Tensor> tensors;
  for (const std::shared_ptr<const ManagedTensor>& managed : missing) {
    if (auto tensor = managed->tensor.lock()) {
      tensors.emplace_back(std::move(tensor));
    }
  }
  {
    const Unrecorded unrecorded;
    gather_units(tensors);
  }
  for (const std::shared_ptr<const ManagedTensor>& managed : missing) {
    TORCH_CHECK(!managed->is_missing(), "Backward needs the parameter ", managed->name,
                " to compute results of a region again. The region has called ScopeOptions::gather_units, and the "
                "bytes of the parameter are still not there. In Python gather_units=True gathers units of "
                "fully_shard() alone: save what leaves the unit (MUST_SAVE), or gather its parameters before.");
  }
}

// `add` puts what it finds missing into the list that it is given, under the lock.
template <class Add>
void gather_what(Tape& tape, Add&& add) {
  if (C10_LIKELY(!tape.gathers_units()) || torch::autograd::get_current_graph_task_id() == -1) {
    return;
  }
  MissingParameters missing;
  std::shared_ptr<const GatherUnits> gather_units;
  {
    const Tape::Lock locked(tape);
    gather_units = locked->gather_units();
    add(missing);
  }
  if (!missing.empty()) {
    gather(*gather_units, missing);
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
