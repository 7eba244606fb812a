// Everything of a tape that needs its lock. Tape::Lock hands it out, so code that has a reference to one holds the
// lock:
//
//   const Tape::Lock tape(*region.tape);
//   Value* value = tape->storages().current(tensor);
//   add_input(*tape, value);                       // void add_input(LockedTape& tape, Value* value);
//
// Each part has one concern, and uses those below it:
//
//   KeptValues      what a memory budget keeps                   Offloading    what leaves its device
//   StorageIndex    which value a storage holds                  HookList      what autograd holds
//   Anchors         what a region forgets while it is open      ExposedStorages  what others may write to unseen
//   Decisions       whether and in what form a value is saved    Pins          what the backwards under way need
//   Lifetimes       how long values and nodes live
//   ValueBytes      where the bytes are
//   ByteLedger      what stats() says                            BudgetShare   what the budget is told
//   TrashCan        what is freed once the lock is released      Observers     who watches
//   ForeignCopies   what was read from memory of others   SharedStorages  what a region that is over shares with the
//   WholeValues     where held sparse tensors have bytes                  program
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/macros/Macros.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ac2/internal/graph/node.h"
#include "ac2/internal/libtorch/managed_tensors.h"
#include "ac2/internal/libtorch/op_environment.h"
#include "ac2/internal/tape/anchors.h"
#include "ac2/internal/tape/autograd_span.h"
#include "ac2/internal/tape/byte_ledger.h"
#include "ac2/internal/tape/decisions.h"
#include "ac2/internal/tape/exposed_storages.h"
#include "ac2/internal/tape/first_read.h"
#include "ac2/internal/tape/foreign_copies.h"
#include "ac2/internal/tape/hook_list.h"
#include "ac2/internal/tape/kept_values.h"
#include "ac2/internal/tape/lifetimes.h"
#include "ac2/internal/tape/meta_table.h"
#include "ac2/internal/tape/offloading.h"
#include "ac2/internal/tape/pins.h"
#include "ac2/internal/tape/shared_storages.h"
#include "ac2/internal/tape/storage_index.h"
#include "ac2/internal/tape/trash.h"
#include "ac2/internal/tape/value_bytes.h"
#include "ac2/internal/tape/whole_values.h"
#include "ac2/trace_stats.h"

namespace ac2::internal {

class LockedTape {
 public:
  LockedTape(const LockedTape&) = delete;
  LockedTape& operator=(const LockedTape&) = delete;

  StorageIndex& storages() { return storages_; }
  // Of a region that is over.
  SharedStorages& shared() { return shared_; }
  const WholeValues& whole_values() const { return whole_values_; }
  Lifetimes& lifetimes() { return lifetimes_; }
  ValueBytes& bytes() { return bytes_; }
  Pins& pins() { return pins_; }
  Decisions& decisions() { return decisions_; }
  KeptValues& kept() { return kept_; }
  Offloading& offloading() { return offloading_; }
  ForeignCopies& foreign_copies() { return foreign_copies_; }
  HookList& hooks() { return hooks_; }
  ByteLedger& ledger() { return ledger_; }
  BudgetShare& budget() { return budget_; }
  Observers& observers() { return observers_; }

  // The tape's own copy of how the tensor lies in its storage.
  const TensorMeta* intern(const at::Tensor& tensor) { return metas_.intern(*tensor.unsafeGetTensorImpl()); }
  // The tape's own copy of the surroundings that an op saw.
  const OpEnvironment* intern(const OpEnvironment& environment) { return environments_.intern(environment); }

  // All outputs of a finished node have been attached.
  void node_finished() {
    lifetimes_.node_finished();
    storages_.drop_dead();
    tidying_is_due_ |= anchors_.node_finished();
  }
  // A backward that recorded no graph of its own, and beside which no other uses the tape.
  void backward_ended() { anchors_.backward_ended(); }
  bool asks_for_gradients() const { return anchors_.asks_for_gradients(); }
  // The program has `value` as a tensor without a gradient.
  void set_without_gradient(Value* value) {
    value->set_without_gradient(true);
    tidying_is_due_ |= anchors_.state_seen(value);
  }
  void anchor_for_room() { anchors_.anchor_for_room(); }
  // A write is about to destroy the original, which forward computed.
  void forget_origin(Value* value);

  // Code that no dispatcher sees may write from now on to `storage`, which `value` stands for.
  void expose(Value* value, c10::StorageImpl* storage);
  // An op or autograd reads the bytes of `tensor`, which stands for `value`. If a kernel that no dispatcher sees has
  // written there since an op made them, the value is exposed.
  void is_read(Value* value, const at::Tensor& tensor) {
    if (value->sample() != 0 && C10_UNLIKELY(is_changed_at_first_read(*value, tensor))) {
      expose_to_kernel(value, tensor);
    }
  }
  // A warning that is to be given without the lock; null if there is none.
  std::unique_ptr<std::string> take_warning() { return std::move(warning_); }
  bool has_warning() const { return warning_ != nullptr; }
  // Whether what an op writes to `storage` cannot be computed again because of that.
  bool is_exposed(const c10::StorageImpl* storage) const { return exposed_.contains(storage); }

  // Graph task ids of the backwards that have unpacked something.
  c10::SmallVector<int, 2>& active_backwards() { return active_backwards_; }
  // Unpacked tensors to which the tape has a reference until no backward is active, and whose bytes it holds anyway.
  std::vector<at::Tensor>& lent_tensors() { return lent_tensors_; }
  bool is_active(int graph_task) const {
    return std::find(active_backwards_.begin(), active_backwards_.end(), graph_task) != active_backwards_.end();
  }

  // Gathers the parameters that a replay misses; null if a replay must find them there.
  const std::shared_ptr<const GatherUnits>& gather_units() const { return gather_units_; }
  // `gather` is the old one afterwards, which must die without the lock.
  void exchange_gather_units(std::shared_ptr<const GatherUnits>& gather);

  // On so many calls the ranks of a job have agreed (settlement.cc).
  int64_t settled_calls() const { return settled_calls_; }
  void set_settled_calls(int64_t calls) { settled_calls_ = calls; }

  // Which nodes of autograd's were made while the region was open.
  AutogradSpan& autograd_span() { return autograd_span_; }

  // The nodes that hooks or living tensors can still come to need, in the order in which they ran.
  std::vector<Node*> reachable_nodes() const;
  TraceStats stats();
  // The region is over: the storage index is empty, and only what hooks need is there.
  bool is_closed() const { return closed_; }
  // The budget's evictor must know everything from now on; see Budget.
  void start_tracking();

 private:
  friend class Tape;

  LockedTape();
  void close();
  void expose_to_kernel(Value* value, const at::Tensor& tensor);
  // Lets go of what a region that lasts would gather without end. Called between two calls, because anything that a
  // call under way refers to would be neither found nor let go of.
  void tidy();

  GraphMemory memory_;
  Observers observers_;
  TrashCan trash_;
  BudgetShare budget_;
  ByteLedger ledger_;
  SharedStorages shared_;
  WholeValues whole_values_;
  ValueBytes bytes_;
  Lifetimes lifetimes_;
  Pins pins_;
  Decisions decisions_;
  Offloading offloading_;
  StorageIndex storages_;
  ForeignCopies foreign_copies_;
  Anchors anchors_;
  KeptValues kept_;
  HookList hooks_;
  MetaTable metas_;
  EnvironmentTable environments_;
  ExposedStorages exposed_;
  std::unique_ptr<std::string> warning_;
  c10::SmallVector<int, 2> active_backwards_;
  std::vector<at::Tensor> lent_tensors_;
  std::shared_ptr<const GatherUnits> gather_units_;
  std::atomic<bool> gathers_units_{false};  // whether there is one, for those without the lock
  AutogradSpan autograd_span_;
  int64_t settled_calls_ = 0;
  bool tidying_is_due_ = false;  // the recording thread's alone
  bool closed_ = false;
};

}  // namespace ac2::internal
