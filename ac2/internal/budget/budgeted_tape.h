// The requests of a memory budget to the tapes that share it.
//
// Threads: each function takes the tape's lock, so the caller must hold neither that nor the budget's own.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ac2/internal/forms/packing_cost.h"
#include "ac2/internal/operators/program_clock.h"

namespace ac2::internal {

class Value;

// A copy of a value on the host, or on its way there.
//
// Threads: each function takes a lock under which memory is allocated, so the caller must hold neither a tape's lock
// nor the budget's own.
class HostCopy {
 public:
  virtual ~HostCopy() = default;

  virtual bool is_done() = 0;
  // How many bytes are copied while ops of a unit of the budget's cost run; 0 if that is not known yet.
  virtual double bytes_per_cost(const ProgramClock& clock) = 0;
};

// A value that was packed.
struct Packed {
  int64_t bytes = 0;
  PackingCost modelled = {};
  PackingCost measured = {};  // by the clock that times ops; modelled if that says nothing
};

class BudgetedTape {
 public:
  struct Freed {
    int64_t bytes = 0;
    bool is_elsewhere = false;       // the value is on another device
    c10::Device device = c10::kCPU;  // whose bytes they were
  };

  virtual ~BudgetedTape() = default;

  // Tells the budget all that the tape knows, and from now on every change. Does nothing the second time.
  virtual void start_tracking() = 0;
  // Begins to copy the bytes of `value` to the host if `may_copy`, which is asked with the tape's lock taken, says that
  // they are there. Null, and nothing has changed, if they cannot be copied.
  virtual std::shared_ptr<HostCopy> copy_to_host(Value* value, const ProgramClock& clock,
                                                 c10::function_ref<bool()> may_copy) = 0;
  // Frees the bytes of `value` if `may_free`, which is asked with the tape's lock taken, says that they are there and
  // need not stay. Without a form they are dropped: when the value is wanted again, it will be copied back if it has a
  // copy on the host, unpacked if it was packed, and replayed if it has neither. A packed form that is there alone is
  // dropped. With the number of a form they are packed into that, which takes their place; null, and nothing has
  // changed, if they cannot be packed, or if that frees nothing. Throws what the form throws.
  virtual std::optional<Packed> free_for_room(Value* value, std::optional<uint8_t> form,
                                              c10::function_ref<bool()> may_free) = 0;
  // Drops what `value` was packed into if its bytes are there beside it.
  virtual void drop_packed(Value* value, c10::function_ref<bool()> is_known) = 0;
  // Drops in the middle of an allocation: the bytes, or those of the form, are dropped if nobody else has them, so
  // that they are free then, if they are on `device`, if that is given, and if no code of the program runs when they
  // are freed. Waits for the lock for some milliseconds at most.
  virtual Freed free_in_time(Value* value, std::optional<c10::Device> device, c10::function_ref<bool()> may_drop) = 0;
  // start_tracking(), waiting as long; false if it could not.
  virtual bool start_tracking_in_time() = 0;
  // There is nothing left to drop. Lets go of bytes that are held only so that values that the program still has could
  // be computed again.
  virtual void anchor_for_room() = 0;

  // --- ranks that agree (rank_agreement.h); nothing is told of a tape whose replays do not communicate ---

  // Appends what was dropped of the calls that were recorded since the last settle(), in their order.
  virtual void add_drops(std::vector<uint8_t>& drops) = 0;
  // `drops` is what all ranks have dropped, of as many calls as add_drops() has told. From now on the results of these
  // calls whose replays communicate are no budget's choice: they are held, or gone on all ranks.
  virtual void settle(c10::ArrayRef<uint8_t> drops) = 0;
};

}  // namespace ac2::internal
