// The requests of a memory budget to the tapes that share it.
//
// Threads: each function takes the tape's lock, so the caller must hold neither that nor the budget's own.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <optional>

namespace ac2::internal {

class Value;

class BudgetedTape {
 public:
  struct Freed {
    int64_t bytes = 0;
    bool is_elsewhere = false;  // the value is on another device
  };

  virtual ~BudgetedTape() = default;

  // Tells the budget all that the tape knows, and from now on every change. Does nothing the second time.
  virtual void start_tracking() = 0;
  // Drops the bytes of `value` if `may_drop`, which is asked with the tape's lock taken, says that they are there and
  // need not stay. The value will be replayed if it is wanted again.
  virtual void drop_for_room(Value* value, c10::function_ref<bool()> may_drop) = 0;
  // The same in the middle of an allocation: the bytes are dropped if nobody else has them, so that they are free then,
  // if they are on `device`, if that is given, and if no code of the program runs when they are freed. Waits for the
  // lock for some milliseconds at most.
  virtual Freed free_in_time(Value* value, std::optional<c10::Device> device, c10::function_ref<bool()> may_drop) = 0;
  // start_tracking(), waiting as long; false if it could not.
  virtual bool start_tracking_in_time() = 0;
  // There is nothing left to drop. Lets go of bytes that are held only so that values that the program still has could
  // be computed again.
  virtual void forget_for_room() = 0;
};

}  // namespace ac2::internal
