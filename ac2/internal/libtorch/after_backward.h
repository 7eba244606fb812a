// Calls that wait for the end of a backward, for what can only be said when a whole step has been seen.
//
//   after_backward([wanted] { return wanted->tell(); });   // called after each backward until it returns true
//   backward_has_ended();                                  // by replay/backward_run.h
//
// Threads: any. A call runs on a thread on which a backward through a region has ended, without any lock of ac2's, and
// not twice at once.
#pragma once

#include <functional>

namespace ac2::internal {

// Of very many that wait, in a program that runs no backward, the later ones are forgotten. What the call throws is
// dropped.
void after_backward(std::function<bool()> call);
void backward_has_ended() noexcept;

}  // namespace ac2::internal
