#include "ac2/internal/replay/backward_run.h"

#include <ATen/core/grad_mode.h>
#include <c10/macros/Macros.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ac2/internal/libtorch/after_backward.h"
#include "ac2/internal/libtorch/graph_making.h"
#include "ac2/internal/libtorch/warn_in_op.h"
#include "ac2/internal/locks/fork_locks.h"
#include "ac2/internal/locks/mutex.h"
#include "ac2/internal/replay/kept_for_next.h"
#include "ac2/internal/replay/read_ahead.h"
#include "ac2/internal/replay/replayed_at_once.h"
#include "ac2/internal/tape/tape.h"

namespace ac2::internal {

namespace {

using Entered = std::vector<EnteredTape>;

thread_local BackwardRun* current_run = nullptr;

// Entered from threads that called no backward() themselves.
struct Unattended {
  Mutex mutex;
  int runs ABSL_GUARDED_BY(mutex) = 0;
  Entered entered ABSL_GUARDED_BY(mutex);
};

Unattended& unattended() {
  static auto* state = [] {
    auto* made = new Unattended;  // leaked: the engine's threads outlive static destruction
    ForkLocks::add_last(made->mutex);
    return made;
  }();
  return *state;
}

// A handler of warnings may throw, and this may be a destructor.
void warn(const std::string& text) noexcept {
  try {
    warn_in_op(text);
  } catch (...) {
  }
}

// Before anything of the tape is pinned: a pinned value is not dropped.
void agree_with_ranks(Tape& tape, int graph_task) {
  Budget* budget = tape.budget();
  if (C10_LIKELY(budget == nullptr || !budget->has_ranks())) {
    return;
  }
  {
    const Tape::Lock locked(tape);
    if (locked->is_active(graph_task)) {
      return;
    }
  }
  budget->agree(graph_task);
}

void leave(Tape& tape, const EnteredTape& entered) {
  std::vector<at::Tensor> lent;  // goes after the lock
  const Tape::Lock locked(tape);
  auto& active = locked->active_backwards();
  active.erase(std::remove(active.begin(), active.end(), entered.graph_task), active.end());
  locked->observers().tell([&](Observer& observer) { observer.backward_ends(entered.graph_task); });
  if (!active.empty()) {
    return;
  }
  lent.swap(locked->lent_tensors());
  if (tape.keeps_for_next_backward() && entered.keeps_graph) {
    keep_for_next_backward(*locked);
  }
  for (TapeHook* hook = locked->hooks().first(); hook != nullptr; hook = hook->next()) {
    hook->unpin(*locked);
  }
  if (!entered.creates_graph) {
    locked->backward_ended();
  }
}

void leave(const Entered& entered) {
  for (const EnteredTape& one : entered) {
    if (const std::optional<std::string> warning = backward_leaves(one.graph_task)) {
      warn(*warning);
    }
    const std::shared_ptr<Tape> tape = one.tape.lock();
    if (tape) {
      leave(*tape, one);
    }
    if (const std::shared_ptr<Budget> budget = one.budget.lock()) {
      budget->backward_turn().leave(one.graph_task);
      budget->backward_ended(one.graph_task);
    }
    if (tape && tape->offload_form() != nullptr) {
      ReadAhead::stop(*tape);
    }
  }
  if (!entered.empty()) {
    backward_has_ended();
  }
}

// Leaves a tape when the backward that entered it ends: called by the engine when it succeeds, destroyed with the
// engine's own record of it (its graph task) when it fails.
class LeavesAtTheEnd {
 public:
  explicit LeavesAtTheEnd(EnteredTape entered) : entered_{std::move(entered)} {}
  ~LeavesAtTheEnd() { leave(entered_); }
  LeavesAtTheEnd(const LeavesAtTheEnd&) = delete;
  LeavesAtTheEnd& operator=(const LeavesAtTheEnd&) = delete;

  void now() { leave(std::exchange(entered_, {})); }

 private:
  Entered entered_;
};

void leave_with_graph_task(EnteredTape entered) {
  auto leaves = std::make_shared<LeavesAtTheEnd>(std::move(entered));
  torch::autograd::Engine::get_default_engine().queue_callback([leaves] { leaves->now(); });
}

}  // namespace

BackwardRun::BackwardRun() : outer_(std::exchange(current_run, this)) {
  const MutexLock lock(unattended().mutex);
  ++unattended().runs;
}

BackwardRun::~BackwardRun() {
  current_run = outer_;
  leave(entered_);
  Entered left_over;
  {
    const MutexLock lock(unattended().mutex);
    if (--unattended().runs == 0) {
      left_over = std::exchange(unattended().entered, {});
    }
  }
  leave(left_over);
}

void BackwardRun::enter(Tape& tape, int graph_task) {
  agree_with_ranks(tape, graph_task);
  {
    const Tape::Lock locked(tape);
    if (locked->is_active(graph_task)) {
      return;
    }
    if (locked->active_backwards().empty()) {
      locked->budget().backward_begins(locked->lifetimes().live_nodes());
    }
    locked->active_backwards().push_back(graph_task);
    locked->observers().tell([&](Observer& observer) { observer.backward_begins(graph_task); });
    if (tape.offload_form() != nullptr) {
      ReadAhead::restart(*locked);
    }
    // All hooks are pinned now, not one by one as they are unpacked: values that the first needs are then there for the
    // others, instead of being replayed for each.
    for (TapeHook* hook = locked->hooks().first(); hook != nullptr; hook = hook->next()) {
      hook->pin(*locked);
    }
    backward_enters(*locked, graph_task);
  }
  if (Budget* budget = tape.budget()) {
    budget->backward_turn().enter(graph_task, &tape);
  }
  // A function of the program's may have turned grad mode off.
  const EnteredTape entered{
      .tape = tape.weak_from_this(),
      .budget = tape.budget() != nullptr ? tape.budget()->weak_from_this() : std::weak_ptr<Budget>(),
      .graph_task = graph_task,
      .creates_graph = at::GradMode::is_enabled() || makes_graph(graph_task, false),
      .keeps_graph = torch::autograd::get_current_graph_task_keep_graph()};
  if (current_run != nullptr) {
    current_run->entered_.push_back(entered);
    return;
  }
  {
    const MutexLock lock(unattended().mutex);
    if (unattended().runs > 0) {
      unattended().entered.push_back(entered);
      return;
    }
  }
  leave_with_graph_task(entered);
}

}  // namespace ac2::internal
