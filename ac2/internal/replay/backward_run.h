// A call of backward(), from the engine's entry to its exit, failures included.
//
// At its end everything that was replayed for it and that autograd has not asked for is dropped. A backward over a part
// of the graph leaves such values.
//
// A Python process calls its engine without ours in front, so that no run stands around its backwards. There the
// engine's graph task, which dies with the backward, tells of the end. A callback in the engine's queue would not do by
// itself: the engine does not call it when a backward fails.
//
// Threads: hooks find the run of the thread that called backward(). For hooks that run on another thread, such as a
// device's, the last run of the process to end cleans up their tape.
#pragma once

#include <memory>
#include <vector>

namespace ac2::internal {

class Budget;
class Tape;

// A tape that a backward uses. The tape dies before the backward ends if autograd's graph alone has held it, for the
// last hook goes with the last node that has run. Its budget is told of the end all the same.
struct EnteredTape {
  std::weak_ptr<Tape> tape;
  std::weak_ptr<Budget> budget;
  int graph_task = -1;
  bool creates_graph = false;  // the backward is differentiated itself, so it is no end of anything
  bool keeps_graph = false;
};

class BackwardRun {
 public:
  BackwardRun();
  ~BackwardRun();
  BackwardRun(const BackwardRun&) = delete;
  BackwardRun& operator=(const BackwardRun&) = delete;

  // The backward `graph_task` of this thread is about to use `tape`: everything that hooks hold is pinned, unless it
  // already is.
  static void enter(Tape& tape, int graph_task);

 private:
  BackwardRun* const outer_;
  std::vector<EnteredTape> entered_;
};

}  // namespace ac2::internal
