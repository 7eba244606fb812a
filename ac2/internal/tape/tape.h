// The trace of one region: which values exist, which storage holds which, and how long each is kept.
//
//   Tape::Lock lock(tape);
//   Value* v = tape.current(tensor);
//   tape.ref(v);
//   tape.use(v);      // kept until the matching unuse(), if it is a saved one
//
// Threads: everything needs a Lock. What dies under a Lock is freed after it is released, so that neither deleters nor
// destructors of user objects ever run under the mutex. No op runs under it either.
#pragma once

#include <c10/util/SmallVector.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "ac2/internal/libtorch/meta_table.h"
#include "ac2/internal/tape/graph.h"
#include "ac2/internal/tape/pool.h"
#include "ac2/internal/tape/storage_map.h"
#include "ac2/internal/tape/trace_log.h"
#include "ac2/offload_options.h"
#include "ac2/trace_stats.h"

namespace ac2::internal {

class BackwardState;
class Budget;
class Offloader;
class SavedTensorHook;
class StepLog;
class Timeline;
class Verifier;

class Tape : public std::enable_shared_from_this<Tape> {
 public:
  Tape();
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // What died under a Lock.
  struct Trash {
    explicit Trash(Tape& tape) : tape(tape) {}
    ~Trash();
    Trash(const Trash&) = delete;
    Trash& operator=(const Trash&) = delete;

    Tape& tape;
    Value* values = nullptr;
    Node* nodes = nullptr;
    c10::SmallVector<c10::Storage, 4> storages;
    c10::SmallVector<at::Tensor, 2> tensors;
    std::vector<c10::IValue> packed;
  };

  class Lock {
   public:
    explicit Lock(Tape& tape) : tape_(tape) {
      tape_.mutex_.lock();
      tape_.lock_ = this;
    }
    ~Lock() { tape_.mutex_.unlock(); }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    friend class Tape;

    Tape& tape_;
    std::optional<Trash> trash_;  // if there is any; emptied after the body of ~Lock, so without the mutex
  };

  // --- which value a tensor's storage holds now ---------------------------------------------------------------------

  // Made a saved value from outside if the tape does not know it, or if it has changed unseen. Tensor must be defined.
  Value* current(const at::Tensor& tensor);
  // Whatever the tape has for its storage, and nothing noted or let go of; null if nothing. Plain storages only.
  const Value* known(const at::Tensor& tensor) const;
  // Null if the tape does not know it.
  Value* find_current(const at::Tensor& tensor);
  // A new value for a storage that an op has made, or null if the tape knows that storage. `tensor` has a plain
  // storage.
  Value* add_made(const at::Tensor& tensor);
  // A new value for a storage that an op has just written, and that the tape has been told to forget. Its version is
  // noted when it is first used: ADInplaceOrView counts it only after the op.
  Value* add_written(const at::Tensor& tensor);
  // The version counter is about to go up by one, though nothing is written.
  void expect_new_version(const at::Tensor& tensor);
  // The storage is about to be written: what it held is current no longer.
  void forget_current(c10::StorageImpl* storage);
  // The region is over: only what hooks need stays.
  void close();

  // --- lifetime -----------------------------------------------------------------------------------------------------

  void ref(Value* value) { ++value->refs; }
  void unref(Value* value);
  void use(Value* value);
  void unuse(Value* value);
  // Wires a finished node to its outputs; `node` is freed when the last of them dies.
  void attach(Node* node, Value* value, NodeOutput output, bool saved);
  // A node without outputs yet: attach() it to some, or discard() it.
  Node* make_node() { return nodes_.make(); }
  void node_recorded();
  void discard(Node* node);
  // `value` is computed again when needed, and so is what that takes and no longer exists, unless policies say
  // MUST_SAVE of it. False, and nothing changed, if it cannot be.
  bool make_recomputed(Value* value);
  void make_saved(Value* value);
  // From now on the bytes of a saved value are `copy`, which nobody else can write to.
  void hold_copy(Value* value, c10::Storage copy);
  // The same for the bytes that a backward under way has pinned.
  void copy_real(Value* value, c10::Storage copy);
  // What forward computed is about to be destroyed.
  void forget_origin(Value* value);
  // Lets go of a copy that nothing came to use.
  void drop_unused(Value* value);
  // How a saved value is saved; null: by reference. `tensor`, which lies in its storage, is what pack will see if it
  // covers all of that, else a flat view of it.
  void set_hooks(Value* value, std::shared_ptr<const SaveWithHooks> hooks, const at::Tensor& tensor);

  // --- offloading (see offloaded_values.cc) -------------------------------------------------------------------------

  // By the recording thread.
  void set_offload_options(const OffloadOptions& options);
  // Whether an offloaded result leaves the device that it is on.
  bool may_leave(const at::Tensor& tensor) const;
  // A saved value is to leave the device, if it may. `tensor` as for set_hooks().
  void set_offload(Value* value, const at::Tensor& tensor);
  // What was to be packed stays where it is, as a saved value like any other.
  void keep_in_place(Value* value);
  // Throws if the bytes of an offloaded value were changed from outside: nobody can say when they were copied.
  void check_offloaded(const Value& value) const;
  // Null as long as nothing is to be offloaded. Which it is needs no lock.
  Offloader* offloader() { return offloader_.load(std::memory_order_acquire); }

  // --- values being used now (see needs.h) --------------------------------------------------------------------------

  void pin(Value* value);
  void unpin(Value* value);
  // The bytes if they are at hand, else null. Throws if someone changed them from outside.
  const c10::Storage* available(Value* value);
  void set_real(Value* value, c10::Storage storage, at::Tensor replayed);
  void drop_real(Value* value);
  // Replayed bytes that nobody but the caller needs from now on.
  c10::Storage take_real(Value* value);
  // The replayed bytes are those of a saved value from now on.
  void keep_real(Value* value);
  // A pinned value has lost its bytes: its producer must run again.
  void need_again(Value* value);
  // The node has run and its pinned outputs are set: nothing waits for it, and it needs its inputs no more.
  void realized(Node* node);

  // --- under a budget (see kept_values.cc) --------------------------------------------------------------------------

  // The budget's evictor must know everything from now on; see Budget.
  void track();
  // By the recording thread, before anything is recorded that shall count.
  void set_budget(std::shared_ptr<Budget> budget);
  // The smaller of the two rules, for as long as the tape lives. By the recording thread.
  void limit_budget(int64_t bytes);
  // Null if there is none. Which it is needs no lock.
  Budget* budget() { return budget_.load(std::memory_order_acquire); }
  // A finished node whose results can all be computed again, at `cost`: they are kept as its decision says.
  void add_to_budget(Node* node, double cost);
  // Around the time that a hook wants the value.
  void add_holder(Value* value);
  void remove_holder(Value* value);
  // A tag decides anew how a budgeted value is kept.
  void retain(Value* value, const PolicyDecision& decision);
  // The budget's verdict. The value will be replayed if it is wanted again.
  void drop_for_room(Value* value);

  // --- bookkeeping --------------------------------------------------------------------------------------------------

  // Values whose SaveWithHooks must be packed; taken by the caller, who packs them without the lock.
  bool has_pending_packs() const { return !pending_packs_.empty(); }
  c10::SmallVector<Value*, 2> take_pending_packs();
  // The bytes of `value` are in `packed` now, and no longer held by reference.
  void set_packed(Value* value, c10::IValue packed, int64_t packed_bytes);

  // What autograd shall hold of a tensor; `self` is this tape. By the recording thread.
  std::unique_ptr<SavedTensorHook> make_hook(std::shared_ptr<Tape> self);
  // Without the lock, which its destructor takes.
  void destroy_hook(SavedTensorHook* hook);
  void insert_hook(SavedTensorHook* hook);
  void erase_hook(SavedTensorHook* hook);
  SavedTensorHook* first_hook() const { return hooks_; }

  // Counts one op and returns how many came before it. By the recording thread alone; needs no lock.
  int64_t next_op() {
    const int64_t index = recorded_ops_.load(std::memory_order_relaxed);
    recorded_ops_.store(index + 1, std::memory_order_relaxed);
    return index;
  }
  int64_t ops_so_far() const { return recorded_ops_.load(std::memory_order_relaxed); }

  const TensorMeta* intern(const at::Tensor& tensor) { return metas_.intern(*tensor.unsafeGetTensorImpl()); }

  TraceStats stats();
  TraceLog log();

  // From now on, what ops compute is remembered as fingerprints. By the recording thread.
  void start_verifying();
  // From now on, what is recorded and what backward takes out is written down; null: no more. By the recording thread.
  void set_step_log(std::shared_ptr<StepLog> log);
  // Null if there is none. Which it is needs no lock.
  StepLog* step_log() { return step_log_.load(std::memory_order_acquire); }

  // Null unless verifying. Which it is needs no lock.
  Verifier* verifier() { return verifier_.load(std::memory_order_acquire); }

  // A timeline, the verifier or a step log wants to see everything that happens. Needs no lock.
  bool is_watched() { return timeline() != nullptr || verifier() != nullptr || step_log() != nullptr; }

  // From now on, what happens is written down. By the recording thread.
  void start_timeline();
  // Null if nobody asked for one. Which it is needs no lock, what it has does.
  Timeline* timeline() { return timeline_.load(std::memory_order_acquire); }

  int64_t evicted_values = 0;
  int64_t recomputed_ops = 0;
  int64_t copied_bytes = 0;
  // A name may yet make a recomputed value of a saved one: what computed a saved value that has died is kept too.
  bool names_decide = false;

  // Guards replays: see replayer.h.
  BackwardState& backward() { return *backward_; }

 private:
  // Of the Lock that is held.
  Trash& trash() { return lock_->trash_ ? *lock_->trash_ : lock_->trash_.emplace(*this); }

  void keep(Value* value);
  void let_go(Value* value);
  void evict(Value* value);
  // Tells the budget's evictor where the bytes are, after every change of that, if it is to know.
  void update_place(Value* value);
  // Tells the budget of bytes that it must count though it cannot drop them: after `held` is set, before it is dropped.
  void count_held(Value* value);
  void uncount_held(Value* value);
  void count_real(Value* value);
  void count(Counted& counted, int64_t bytes);
  void uncount(Counted& counted, int64_t bytes);
  // What was counted before this tape was tracked, counted as if it had been.
  void recount(Value* value);

  void hold(Value* value);
  void drop_held(Value* value);
  void count_saved(const Value* value, int64_t bytes);
  // In another form. `direction`: 1 or -1.
  void count_packed(const Value* value, int64_t direction);
  void count_recomputed(const Value* value, int64_t bytes);
  void count_copied(const Value* value);
  void detach_producer(Value* value);
  void activate(Node* node);
  void deactivate(Node* node);
  void reap();
  void track(Value* value);
  void untrack(Value* value);
  void offload_input(Value* value, const at::Tensor& tensor);
  // Its storage has died, and it is no longer in `current_`.
  void forget_dead(Value* value);
  bool forget_if_dead(Value* value);
  // At the end of an op. Not while it is written down: what dies may be what keeps bytes that it is about to use.
  void let_go_of_dead();
  // Lets go of the dead among those that are settled.
  void sweep_settled();
  void sweep_all();
  std::vector<Node*> reachable_nodes() const;
  TraceLog reachable_log() const;
  void log_what_is_held();
  Value* current_opaque(const at::Tensor& tensor, bool create);

  static constexpr size_t kLeastSwept = 64;

  std::mutex mutex_;
  Lock* lock_ = nullptr;    // that is held
  Value* dying_ = nullptr;  // refs == 0, not yet taken apart
  bool reaping_ = false;

  Pool<Value> values_;
  Pool<Node> nodes_;
  const std::unique_ptr<Pool<SavedTensorHook>> hook_pool_;

  StorageMap current_;
  c10::SmallVector<Value*, 8> dead_;  // that were in current_
  size_t sweep_at_ = kLeastSwept;     // when so many are settled
  absl::flat_hash_map<c10::TensorImpl*, Value*> current_opaque_;

  MetaTable metas_;
  SavedTensorHook* hooks_ = nullptr;
  c10::SmallVector<Value*, 2> pending_packs_;
  std::unique_ptr<BackwardState> backward_;
  OffloadOptions offload_options_;
  std::unique_ptr<Offloader> owned_offloader_;
  std::atomic<Offloader*> offloader_{nullptr};
  std::shared_ptr<Budget> owned_budget_;
  bool tracked_ = false;
  std::vector<std::shared_ptr<void>> budget_limits_;
  std::atomic<Budget*> budget_{nullptr};
  std::shared_ptr<StepLog> owned_step_log_;
  std::atomic<StepLog*> step_log_{nullptr};
  std::unique_ptr<Verifier> owned_verifier_;
  std::atomic<Verifier*> verifier_{nullptr};
  std::unique_ptr<Timeline> owned_timeline_;
  std::atomic<Timeline*> timeline_{nullptr};

  std::atomic<int64_t> recorded_ops_{0};
  int64_t live_nodes_ = 0;
  int64_t saved_bytes_ = 0;
  int64_t offloaded_bytes_ = 0;
  int64_t recomputed_bytes_ = 0;
};

}  // namespace ac2::internal
