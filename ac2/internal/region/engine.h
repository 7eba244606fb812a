// The autograd engine, with one thing changed: the hooks that it hands out for saving a tensor.
//
// Installed in front of the engine that was there, which goes on running every backward.
#pragma once

namespace ac2::internal {

// Idempotent; any thread. If another engine has been put in front of ours since, ours goes in front of that.
void install_engine();

}  // namespace ac2::internal
