// The autograd engine, with one thing changed: the hooks that it hands out for saving a tensor.
//
// Installed in front of the engine that was there, which goes on running every backward.
#pragma once

namespace ac2::internal {

// Idempotent; any thread. If another engine has been put in front of ours since, ours goes in front of that.
void install_engine();

// `open` is called where a thread that has no region saves a tensor for a backward, outside of any backward. The
// function may open a region there, which has the op under way as an op from outside. It must not throw. Null, as at
// first, for none.
//
// Rejected: to open a region when a thread starts. Most threads never record a graph.
void open_regions_by(void (*open)());

// `call` is called before each backward that comes by this engine, on its thread and without a lock of ours. Python's
// own backwards do not. The function must not throw. Null, as at first, for none.
void before_backwards(void (*call)());

}  // namespace ac2::internal
