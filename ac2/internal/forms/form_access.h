// The way from the public Form to what rooms below the program know about it, and the forms of the library's own.
//
// Threads: any.
#pragma once

#include <atomic>

#include "ac2/form.h"

namespace ac2::internal {

class FormAccess {
 public:
  // Null unless the library copies the values of the form by itself, beside the ops.
  static const OffloadOptions* copied_with(const Form& form) { return form.copied_with(); }

  // Whether any form of this process has functions that may let go of what the program has. Relaxed: regions ask when
  // they open, and need no more order than that a thread sees its own forms.
  static bool any_may_drop_tensors() { return may_drop_tensors_.load(std::memory_order_relaxed); }
  static void note_may_drop_tensors() { may_drop_tensors_.store(true, std::memory_order_relaxed); }

 private:
  static inline std::atomic<bool> may_drop_tensors_{false};
};

// A form that lets go of nothing which the program has, as those of ac2::forms are.
class HarmlessForm : public Form {
 protected:
  HarmlessForm() : Form(Harmless::kYes) {}
};

}  // namespace ac2::internal
