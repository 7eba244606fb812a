#include "ac2/internal/tape/locked_tape.h"

#include "absl/container/flat_hash_set.h"
#include "ac2/internal/libtorch/warn_in_op.h"

namespace ac2::internal {

LockedTape::LockedTape()
    : trash_(memory_),
      ledger_(observers_),
      bytes_(ledger_, budget_, trash_, shared_, whole_values_, observers_),
      lifetimes_(memory_, bytes_, budget_, trash_, observers_),
      pins_(bytes_),
      decisions_(lifetimes_, bytes_, observers_),
      offloading_(decisions_),
      storages_(lifetimes_, bytes_, offloading_, shared_, whole_values_),
      foreign_copies_(lifetimes_),
      anchors_(lifetimes_, storages_, ledger_, observers_),
      kept_(bytes_, pins_, decisions_, offloading_, budget_, ledger_) {}

void LockedTape::forget_origin(Value* value) {
  observers_.tell([&](Observer& observer) { observer.overwritten(*value); });
  kept_.drop_before_overwrite(value);
  bytes_.lose_original(value);
}

void LockedTape::expose(Value* value, c10::StorageImpl* storage) {
  if (!closed_) {
    exposed_.add(storage);
  }
  if (value->producer() != nullptr) {
    bytes_.forget_offered_form(value);
  }
  // A value with another form is in that form already. Bytes that a backward has replayed are that backward's.
  if (value->producer() != nullptr && value->is_only_original()) {
    observers_.tell([&](Observer& observer) { observer.anchored(*value); });
    lifetimes_.make_outside(value);
  }
}

C10_NOINLINE void LockedTape::expose_to_kernel(Value* value, const at::Tensor& tensor) {
  static constinit SaidOnce said;
  if (warning_ == nullptr && said.is_to_say()) {
    warning_ = std::make_unique<std::string>(text_of_unseen_kernel(*value->producer(), value->bytes()));
  }
  expose(value, tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
}

void LockedTape::exchange_gather_units(std::shared_ptr<const GatherUnits>& gather) {
  gather_units_.swap(gather);
  gathers_units_.store(gather_units_ != nullptr, std::memory_order_relaxed);
  bytes_.note_replays_communicate();
}

std::vector<Node*> LockedTape::reachable_nodes() const {
  std::vector<Node*> nodes;
  absl::flat_hash_set<const Node*> seen;
  const auto visit = [&](const Value* value) {
    if (value != nullptr && value->producer() != nullptr && seen.insert(value->producer()).second) {
      nodes.push_back(value->producer());
    }
  };
  for (const TapeHook* hook = hooks_.first(); hook != nullptr; hook = hook->next()) {
    visit(hook->value());
  }
  storages_.for_each(visit);
  storages_.for_each_unpacked(visit);
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const NodeInput& input : nodes[i]->inputs) {
      visit(input.value);
    }
  }
  std::sort(nodes.begin(), nodes.end(), [](const Node* a, const Node* b) { return a->index < b->index; });
  return nodes;
}

TraceStats LockedTape::stats() {
  TraceStats stats;
  stats.live_nodes = lifetimes_.live_nodes();
  stats.not_offloaded_bytes = offloading_.not_offloaded_bytes();
  ledger_.write_to(stats);
  return stats;
}

void LockedTape::start_tracking() {
  if (!budget_.start_tracking()) {
    return;
  }
  const std::vector<Node*> nodes = reachable_nodes();
  for (Node* node : nodes) {
    const bool droppable = std::any_of(node->outputs.begin(), node->outputs.end(), [](const NodeOutput& output) {
      return output.value != nullptr && output.value->budget().droppable;
    });
    if (droppable) {
      budget_.add_call(*node);
    }
  }
  for (const Node* node : nodes) {
    for (const NodeInput& input : node->inputs) {
      budget_.recount(input.value);
    }
    for (const NodeOutput& output : node->outputs) {
      budget_.recount(output.value);
    }
  }
  storages_.for_each([this](Value* value) { budget_.recount(value); });
  for (TapeHook* hook = hooks_.first(); hook != nullptr; hook = hook->next()) {
    budget_.recount(hook->value());
    budget_.add_hook(*hook->value());
  }
}

void LockedTape::tidy() {
  tidying_is_due_ = false;
  anchors_.look();
  // Observers keep some too.
  if (!metas_.is_crowded() || !observers_.empty()) {
    return;
  }
  absl::flat_hash_set<const TensorMeta*> used;
  for (const Node* node : reachable_nodes()) {
    for (const NodeInput& input : node->inputs) {
      used.insert(input.meta);
    }
  }
  for (const TapeHook* hook = hooks_.first(); hook != nullptr; hook = hook->next()) {
    used.insert(hook->meta());
  }
  metas_.keep_only(used);
}

void LockedTape::close() {
  closed_ = true;
  anchors_.close();
  foreign_copies_.close();
  storages_.close();
  observers_.tell([](Observer& observer) { observer.region_closed(); });
}

}  // namespace ac2::internal
