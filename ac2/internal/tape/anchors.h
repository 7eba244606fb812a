// Forgets producers while a region is open, so that a region that lasts as long as its program does not grow.
//
// A living tensor keeps the nodes that computed it: autograd may come to want the tensor, which may also die before
// backward. An anchor is a living value whose producer the region has forgotten. From then on the anchor is like a
// value from outside the region: hooks and nodes hold the anchor by reference, and replays begin there. Nothing changes
// for what autograd or a node wants already. Values become anchors on three occasions:
//
//   anchors.backward_ended();                      // the values that only the program keeps: all of them
//   if (anchors.node_finished()) anchors.look();   // the values that reach too much and require no gradient
//   if (anchors.state_seen(value)) anchors.look(); // the same
//   anchors.anchor_for_room();                     // the values that keep bytes for their own replays, under a budget
//
// A living tensor that requires a gradient keeps its graph in plain PyTorch too. Beside those, and beside what
// autograd wants, a region that lasts has some kNodes nodes and kBytes bytes. A look comes when, since the last one,
// kNodes nodes have gathered, or as many as there are living values if that is more; or kBytes bytes, or a quarter of
// the bytes if that is more.
//
// A look may fall where the state that a loop carries over is dead, or wanted by a graph, and it may do so in every
// round. So while more than half is left after a look, tensors without a gradient that appear bring further looks. At
// most one such tensor in two does, drawn at random so as not to be in step with the loop. The chance grows with the
// nodes since the last such tensor and falls with the number of values, so that all looks together cost a constant per
// node.
//
// Graphs may overlap from round to round, so that one of them always wants the state before the one that is carried
// over. So some looks go through what graphs want, too (carried_over.h). These walk over all nodes, so the more nodes
// there are the fewer such looks are taken: the next one comes, where a tensor without a gradient appears, after at
// most half as many nodes as there are, drawn at random. Such a look may miss the state, too. So the look marks the
// nodes from which the state must come, what is made from a marked node is marked, and marked values without a gradient
// become anchors when they appear.
//
// Threads: guarded by the tape's lock. node_finished() by the recording thread.
#pragma once

#include <c10/util/FunctionRef.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "ac2/internal/graph/node.h"
#include "ac2/internal/tape/byte_ledger.h"
#include "ac2/internal/tape/lifetimes.h"
#include "ac2/internal/tape/observers.h"
#include "ac2/internal/tape/storage_index.h"

namespace ac2::internal {

class Anchors {
 public:
  // A tape with fewer nodes and fewer bytes than this is not searched for values that reach too much.
  static constexpr int64_t kNodes = 1024;
  static constexpr int64_t kBytes = int64_t{1} << 20;
  // A value reaches too much if more nodes than this, or more bytes than its own, are there for its sake alone. A value
  // behind those that graphs want does so if more nodes than this are in a row, and kNodes nodes or kBytes bytes along
  // the way.
  static constexpr size_t kReach = 64;

  Anchors(Lifetimes& lifetimes, StorageIndex& storages, const ByteLedger& ledger, const Observers& observers)
      : lifetimes_(lifetimes), storages_(storages), ledger_(ledger), observers_(observers) {}

  // A backward has ended that recorded no graph of its own, and no other backward uses the tape.
  void backward_ended();

  // True for one node in kInterval: then look() is due before the next op begins. A look at once would come too early:
  // a call that writes refers to the old value until the call is over.
  bool node_finished() { return ++finished_ % kInterval == 0; }
  // A tensor that requires no gradient has been made or taken, or detached. True if look() is due because of it.
  bool state_seen(Value* value) {
    if (!looks_again_) {
      return false;
    }
    if (value->producer() != nullptr && value->producer()->reaches_far_back) {
      note_far_back(value);
    }
    const auto nodes = static_cast<uint64_t>(finished_ - std::exchange(finished_when_seen_, finished_));
    is_due_ |= draw(std::min(nodes * below_per_node_, kOneInTwo));
    is_due_ |= finished_ >= through_at_;
    return is_due_ || !far_back_.empty();
  }
  void look();
  // A look is near, and wants to know of each value whether it requires a gradient. Asking every tensor of every op
  // would cost more than the few nodes of a short region.
  bool asks_for_gradients() const { return asks_for_gradients_; }
  // A memory budget cannot be met otherwise: bytes that are kept for replays of living values alone go.
  void anchor_for_room();
  // The region is over.
  void close() { let_go_of_far_back(); }

 private:
  static constexpr int64_t kInterval = 64;
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  static constexpr uint64_t kOneInTwo = uint64_t{1} << 31;  // of 2^32

  // A linear congruential generator (Knuth, The Art of Computer Programming 2, 3.3.4).
  uint32_t next_draw() { return draws_ = draws_ * 1664525 + 1013904223; }
  bool draw(uint64_t below) { return next_draw() < below; }
  void anchor_where(c10::function_ref<bool(const Value&)> condition);
  // Makes anchors of the values that reach too much behind what graphs want.
  void anchor_carried_over();
  void note_far_back(Value* value);
  void anchor_far_back();
  void let_go_of_far_back();
  // After a look: when the next one through graphs comes.
  void plan_look_through(bool has_looked_through, int64_t living);
  void anchor(Value* value);

  Lifetimes& lifetimes_;
  StorageIndex& storages_;
  const ByteLedger& ledger_;
  const Observers& observers_;
  int64_t finished_ = 0;  // nodes
  bool looks_again_ = false;
  bool is_due_ = false;
  uint32_t draws_ = 0;
  int64_t finished_when_seen_ = 0;        // nodes, when a tensor without a gradient was seen last
  uint64_t below_per_node_ = 0;           // of 2^32, for each that has been finished since
  int64_t through_at_ = kNever;           // as finished_: from then on a look goes through graphs
  c10::SmallVector<Value*, 4> far_back_;  // marked values that have appeared since the last look; referenced
  bool asks_for_gradients_ = false;
  int64_t most_nodes_between_ = kNodes;  // two looks: as many as there are living values, if that is more
  int64_t nodes_limit_ = kNodes;
  int64_t bytes_limit_ = kBytes;
};

}  // namespace ac2::internal
