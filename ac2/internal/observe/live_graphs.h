// The graphs of autograd's that regions hold values for at this moment: those that a backward may still walk.
//
//   const LiveGraphs graphs = live_graphs();   // 400: a list of losses keeps them
//
// Ops belong to one graph if one takes what the other has computed, over however many ops. What comes from outside of a
// region, such as a parameter, joins no graphs. So a training step is one graph, and a loss that is kept from step to
// step keeps one more each time.
//
// Takes the lock of one tape after the other. Threads: any.
#pragma once

#include <cstdint>

namespace ac2::internal {

struct LiveGraphs {
  int64_t count = 0;
  int64_t bytes = 0;       // of the results that are held for them
  int64_t most_bytes = 0;  // of one of them
  int64_t leaves = 0;      // tensors from outside that are held because their ops take them
  int64_t leaf_bytes = 0;  // of those
};

LiveGraphs live_graphs();

}  // namespace ac2::internal
