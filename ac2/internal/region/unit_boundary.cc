#include "ac2/internal/region/unit_boundary.h"

#include <memory>

#include "ac2/internal/region/region.h"
#include "ac2/internal/region/tensor_decision.h"

namespace ac2::internal {

namespace {

bool may_be_computed_again(Tape& tape, const at::Tensor& tensor) {
  const Tape::Lock locked(tape);
  const Value* value = locked->storages().find(tensor);
  return value != nullptr && !value->is_tagged() && (value->counts_on_replay() || value->budget().droppable);
}

}  // namespace

void save_at_boundary(const at::Tensor& tensor) {
  Region* region = ThreadRegions::here().recording();
  if (region == nullptr || !tensor.defined() || tensor.is_inference()) {
    return;
  }
  const std::shared_ptr<Tape> tape = region->tape;
  if (may_be_computed_again(*tape, tensor)) {
    decide_tensor(*tape, tensor, CheckpointPolicy::MUST_SAVE, DecidedBy::kTag);
  }
}

}  // namespace ac2::internal
