#include "ac2/expose.h"

#include "ac2/internal/graph/live_nodes.h"
#include "ac2/internal/tape/live_tapes.h"
#include "ac2/internal/tape/tape.h"

namespace ac2 {

void expose(const at::Tensor& tensor) {
  if (!tensor.defined() || internal::live_nodes().load(std::memory_order_relaxed) == 0) {
    return;
  }
  internal::for_each_live_tape([&](internal::Tape& tape) {
    const internal::Tape::Lock locked(tape);
    locked->expose(tensor);
  });
}

}  // namespace ac2
