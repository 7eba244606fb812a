// The regions that are open on a thread.
//
// Thread-local, because the dispatch key that makes ops come to us is, and because two threads that train replicas of a
// model must not see each other's policies.
#pragma once

#include <ATen/SavedTensorHooks.h>
#include <ATen/SequenceNumber.h>
#include <c10/macros/Macros.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ac2/internal/budget/budget.h"
#include "ac2/internal/libtorch/managed_tensors.h"
#include "ac2/internal/libtorch/per_thread.h"
#include "ac2/internal/operators/draw_watch.h"
#include "ac2/internal/region/policy_stack.h"
#include "ac2/internal/region/region_observer.h"
#include "ac2/internal/tape/tape.h"
#include "ac2/offload_options.h"
#include "ac2/policy.h"
#include "ac2/trace.h"

namespace ac2::internal {

// An outermost scope and those inside it.
struct Region {
  std::shared_ptr<Tape> tape;
  std::shared_ptr<const Trace> trace;
  PolicyStack policies;
  RecentStates recent_states;
  std::vector<std::shared_ptr<RegionObserver>> observers;  // that scopes have asked for, one of a kind
  // The graph task of the backward that was running where the region was opened, or -1. Ops of any other backward are
  // the engine's and not the program's. They are recorded if that backward makes a graph, because what such a graph
  // saves is wanted by a second backward, and not recorded otherwise.
  int graph_task = -1;
  bool rests_without_grad = false;  // resting.h
};

// The part of ScopeOptions that concerns the region.
struct RegionOptions {
  std::vector<std::shared_ptr<RegionObserver>> observers = {};
  std::shared_ptr<Budget> budget = nullptr;
  std::shared_ptr<Budget> plan_budget = nullptr;  // the policy's own; of both the smaller rules
  std::optional<OffloadOptions> offload = std::nullopt;
  GatherUnits gather_units = nullptr;
  bool keep_for_next_backward = false;
  Forms forms = {};         // that a budget may use
  bool is_inexact = false;  // PolicyInstance::is_inexact of the policy
};

// The thread of a scope, for those on other threads. std::thread::id would not tell threads apart: another thread may
// have it when this one has ended.
struct OpeningThread {
  std::atomic<bool> has_scope_closed_elsewhere{false};
  std::atomic<bool> has_ended{false};
};

// Data that a PolicyScope and its thread share.
struct ScopeState {
  std::shared_ptr<const Trace> trace;
  Region* region = nullptr;  // valid until closed
  int64_t policy = 0;        // in region->policies
  // How many of a Python program's torch.autograd.graph.saved_tensors_hooks were entered before. Those that are entered
  // later lie further inside, and get what is saved there.
  size_t outer_hooks = 0;
  bool outermost = false;
  std::shared_ptr<const OfferedForms> offered;  // the forms that the scope was opened with; null for none
  std::atomic<bool> closed{false};
  std::shared_ptr<OpeningThread> opened_by;
};

class ThreadRegions {
 public:
  // There also while destructors of thread_local and static objects and functions of atexit() run.
  static ThreadRegions& here();
  ThreadRegions(const ThreadRegions&) = delete;
  ThreadRegions& operator=(const ThreadRegions&) = delete;

  std::shared_ptr<ScopeState> open(PolicyInstance policy, const RegionOptions& options = {});
  // Says what was wrong with closing the scope here and now. Empty if nothing was.
  std::string close(const std::shared_ptr<ScopeState>& scope);

  // The region in which ops of this thread are recorded at this moment; null if there is none. Every op calls
  // recording(), so the call is cheap.
  Region* recording();
  // The same without regard to a backward that is running.
  Region* innermost();
  // That of the region that was opened last and is not over, whether or not its ops are recorded at this moment. Null
  // if there is none.
  const Tape* innermost_tape() const { return regions_.empty() ? nullptr : regions_.back()->tape.get(); }
  // Those of the innermost region, also while ops of this thread are not recorded for a moment (Unrecorded). Null if no
  // region is open.
  const PolicyStack* policies() const { return innermost_ == nullptr ? nullptr : &innermost_->policies; }
  // The region whose hooks get what autograd saves at this moment: that of recording(), unless the program has entered
  // saved-tensor hooks of its own since the last scope was opened. The innermost counts.
  Region* saving();

  // Whether a tensor that autograd saves at this moment would be the first of a graph of the program's, with no region
  // open: no backward is running, and neither DisableCheckpointing nor hooks of the program's are in force.
  bool begins_a_graph() const;
  // A region that was opened in the middle of an op may outlive a guard that puts all keys of the thread back. To be
  // called where autograd saves a tensor, and so in the middle of an op too.
  void include_key_again();
  // A region has just come to this thread's keys in the middle of an op.
  void began_within_op() { within_node_ = at::sequence_number::peek(); }
  // Whether that op is still under way. The ops inside of it are none of the region's: the first of them may make a
  // result that the op then writes to. LibTorch does not tell when an op ends. The next op that makes a node of
  // autograd's graph is another one, so that no op up to there is recorded.
  //
  // Rejected: to see that autograd's keys are no longer excluded. They are excluded wherever an op comes to the record
  // key.
  bool is_within_op() { return C10_UNLIKELY(within_node_.has_value()) && is_still_within_op(); }

  // For DisableCheckpointing. The record key is taken back and not excluded (as by Unrecorded), because Python may
  // leave its `disable` blocks in any order, and an excluded key comes back right only in the order of guards.
  void disable();
  void enable();

  // Whether the thread's regions may include kHoldKey, from the next scope on.
  void may_hold_arguments(bool may) { may_hold_arguments_ = may; }
  // The program has made a decision with functions while a region is open: its ops may have to hold their arguments.
  void functions_given() { regions_changed(); }

  // Whether kRecordKey was included on this thread before a region opened here.
  bool found_key_included() const;

 private:
  friend class PerThread<ThreadRegions>;

  ThreadRegions();
  ~ThreadRegions();

  void remove(ScopeState& scope);
  void remove_closed_elsewhere();
  // Values of further ops may be packed into the form of the innermost open scope that has one, or into none.
  void offer_as_innermost_says(const Region& region);
  // Something that decides on the innermost region has changed.
  void regions_changed();
  bool is_still_within_op();

  const at::impl::SavedTensorDefaultHooksTLS* const hooks_;  // the program's own, of this thread
  std::vector<std::unique_ptr<Region>> regions_;
  std::vector<std::shared_ptr<ScopeState>> scopes_;
  Region* innermost_ = nullptr;  // null also while disabled_
  // The number of the next node of autograd's graph when a region came in the middle of an op; empty once the op is
  // known to have ended.
  std::optional<uint64_t> within_node_;
  int disabled_ = 0;
  bool includes_key_ = false;
  bool found_key_included_ = false;  // if includes_key_
  bool may_hold_arguments_ = false;
  bool includes_hold_key_ = false;
  const std::shared_ptr<OpeningThread> this_thread_ = std::make_shared<OpeningThread>();
};

}  // namespace ac2::internal
