// A guard: while one lives, ops of this thread are not recorded, and autograd saves tensors itself. The guard lies in
// the lowest room because fingerprint.cc there runs ops.
//
//   const Unrecorded unrecorded;
//   …ops…
//
// Threads: concerns the thread that makes it. Guards may be nested.
#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

#include "ac2/internal/libtorch/torch_compat.h"

namespace ac2::internal {

class Unrecorded {
 public:
  Unrecorded() { ++depth(); }
  ~Unrecorded() { --depth(); }
  Unrecorded(const Unrecorded&) = delete;
  Unrecorded& operator=(const Unrecorded&) = delete;

  // Whether one lives on this thread, or a CompilerTracing.
  static bool here() { return depth() > 0; }

 private:
  friend class CompilerTracing;  // counts as one, and leaves the key where it is

  static int& depth() {
    static thread_local int depth = 0;
    return depth;
  }

  c10::impl::ExcludeDispatchKeyGuard excluded_{kRecordKey};
};

}  // namespace ac2::internal
