#include "ac2/expose.h"

#include "ac2/internal/record/handed_out.h"

namespace ac2 {

void expose(const at::Tensor& tensor) {
  internal::before_unseen_write(tensor);
}

}  // namespace ac2
