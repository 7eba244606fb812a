// Whether a backward makes a graph of its own (create_graph).
//
//   if (makes_graph(torch::autograd::get_current_graph_task_id(), at::GradMode::is_enabled())) …
//
// The engine tells nobody. It runs such a backward in grad mode, which the first look at a backward finds. What a
// function of the program's computes without grad mode later belongs to it. In a backward without create_graph a
// function may turn grad mode on (torch.utils.checkpoint does, to compute forward again). If the first look at the
// backward falls there, or if the backward keeps its graph, it is taken for one that makes a graph from there on.
//
// Threads: by a thread on which the backward runs, and about what the thread has seen.
#pragma once

namespace ac2::internal {

// `graph_task` is that of the calling thread, or -1 if no backward runs on it; `grad_mode` is the thread's. Both are
// given, because LibTorch looks each up by a call, and every unpacked tensor asks.
bool makes_graph(int graph_task, bool grad_mode);

}  // namespace ac2::internal
