// The surroundings that an op sees beside its arguments, and on which its results may depend: the thread's dispatch
// state and grad mode, the default dtype, the number of threads, whether denormal numbers are flushed to zero, and
// LibTorch's global switches. A replay needs what forward had, whatever the program has set since.
//
//   OpEnvironment forward = OpEnvironment::here(OpEnvironment::Reach::kSwitches);   // in forward
//   …
//   const InEnvironment guard(forward, /*may_wait=*/true);                          // in backward, around the replay
//
// A replay has these as forward had them (tests in brackets):
//
//   - the thread's dispatch state, but for dispatch modes of Python (autocast_test);
//   - the thread's grad mode (recurrent layers of modules_test);
//   - the default dtype, and whether the thread flushes denormal numbers to zero (environment_test, as all below);
//   - the number of threads;
//   - deterministic algorithms, whether they only warn, and whether empty memory is filled;
//   - oneDNN, NNPACK and cuDNN: on or off, deterministic, searching for the best kernel;
//   - the kernels that attention may use, and how products of half precision are added up;
//   - for each backend, the precision of float32 in products, convolutions and recurrent layers (TF32, bfloat16).
//
// A replay has these from elsewhere, and they are not in an OpEnvironment:
//
//   - the state of a generator: as before the op (operators/random_replay.h; random_test);
//   - the stream: the engine's (stream_order.h; replay_streams_test);
//   - the current device: that of the op's tensors. A device argument without an index gets forward's index
//     (arguments_test);
//   - the default device of Python: Python writes it into the arguments (python/tests/test_scope.py);
//   - the preferred libraries for BLAS and linear algebra, and the order of attention's kernels: the program's at the
//     time of the replay. These choose among libraries on a GPU, and have not been tried there.
//
// Rejected: saving the results of ops where something has changed (in forward nobody knows what will change); reading
// the switches only where a region opens (libraries set them inside); an error in backward (the program has done
// nothing wrong).
//
// Threads: any. All but dispatch state, grad mode and denormals belongs to the process, as in LibTorch: while a guard
// that changes any of it lives, ops of other threads see the change. Ops that are replayed under a guard that may
// wait do not see it.
#pragma once

#include <ATen/core/grad_mode.h>
#include <c10/core/ScalarType.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <vector>

#include "ac2/internal/libtorch/torch_compat.h"
#include "ac2/internal/locks/shared_mutex.h"

namespace ac2::internal {

struct OpEnvironment {
  // How much of the surroundings an op looks at. Each level includes the levels before it.
  enum class Reach : uint8_t {
    kDtype,      // an elementwise op on so few numbers that one thread computes them: default dtype, denormals
    kSwitches,   // any other: threads and global switches too
    kPrecision,  // products, convolutions, recurrent layers, ops of others: float32's precision too
  };

  uint32_t switches = 0;              // kSwitches: a bit each
  int32_t threads = 0;                // kSwitches
  Float32Precisions precisions = {};  // kPrecision
  c10::ScalarType default_dtype = c10::ScalarType::Float;
  bool flushes_denormals = false;
  Reach reach = Reach::kDtype;
  bool grad_mode = false;  // some kernels look at it: oneDNN's RNN keeps a workspace only if it is on
  // The dispatch state around the call. Recording fills it in: by the time of here() it has changed the thread's.
  c10::impl::PODLocalDispatchKeySet dispatch_state = {};

  static OpEnvironment here(Reach reach);

  // Whether the parts that belong to the process are the same.
  bool is_same_process_as(const OpEnvironment& other) const {
    return switches == other.switches && threads == other.threads && precisions == other.precisions &&
           default_dtype == other.default_dtype;
  }
  bool operator==(const OpEnvironment& other) const {
    // An elementwise op on few numbers does not look at the rest, which here() has left as it was made.
    return dispatch_state.included_ == other.dispatch_state.included_ &&
           dispatch_state.excluded_ == other.dispatch_state.excluded_ && default_dtype == other.default_dtype &&
           flushes_denormals == other.flushes_denormals && grad_mode == other.grad_mode && reach == other.reach &&
           (reach == Reach::kDtype || is_same_process_as(other));
  }
};

// A guard: while it lives, everything but the dispatch state is set. Replays set the dispatch state themselves.
class InEnvironment {
 public:
  // With `may_wait` no other such guard changes what belongs to the process meanwhile: the constructor waits for it. An
  // op that runs code of the program's must not wait, because that code may need a lock of a thread that waits too.
  InEnvironment(const OpEnvironment& environment, bool may_wait);
  ~InEnvironment();
  InEnvironment(const InEnvironment&) = delete;
  InEnvironment& operator=(const InEnvironment&) = delete;

 private:
  const at::AutoGradMode grad_mode_;
  std::shared_lock<SharedMutex> beside_others_;
  std::unique_lock<SharedMutex> alone_;
  // The surroundings that the constructor found, if it has changed them.
  std::optional<OpEnvironment> before_;
  const bool flushed_denormals_;
};

// The environments of one tape, each kept once. Guarded by the tape's lock. An environment lives as long as the table.
class EnvironmentTable {
 public:
  const OpEnvironment* intern(const OpEnvironment& environment) {
    const OpEnvironment*& last = last_[static_cast<size_t>(environment.reach)];
    if (last == nullptr || *last != environment) {
      last = find_or_add(environment);
    }
    return last;
  }

 private:
  const OpEnvironment* find_or_add(const OpEnvironment& environment);

  std::array<const OpEnvironment*, 3> last_ = {};          // by reach
  std::vector<std::unique_ptr<const OpEnvironment>> all_;  // few: a program seldom changes them
};

}  // namespace ac2::internal
