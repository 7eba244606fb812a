// Programs that go round and round and carry something over: what a region around a whole loop meets.
//
//   for (const benchmarks::Loop& loop : benchmarks::loops()) {
//     benchmarks::Rounds rounds = loop.begin();
//     const ac2::PolicyScope scope("recompute_all");
//     for (int i = 0; i < 400; ++i) rounds.round();
//   }
//
// All are small: four layers of 64 channels, batches of 16.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

namespace benchmarks {

// A loop that has begun. It owns its models.
struct Rounds {
  std::function<void()> round;
  std::function<std::vector<at::Tensor>()> state;  // all that it carries over
};

struct Loop {
  std::string name;
  // Each round runs a backward over all that was recorded in it. Otherwise none runs at all.
  bool has_backward = true;
  std::function<Rounds()> begin;  // from the same seed each time
};

std::vector<Loop> loops();

}  // namespace benchmarks
