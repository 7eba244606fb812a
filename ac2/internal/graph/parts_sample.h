// A hash of a few of the bytes of a sparse or nested tensor, by which one sees later whether somebody has written
// there.
//
// A region holds such a tensor whole, and a write to its values through another tensor, `values()` or `.data` counts no
// version of it. The values and indices lie in tensors of their own, of which byte_sample.h looks at a few words.
#pragma once

#include <c10/core/TensorImpl.h>

#include <cstdint>

namespace ac2::internal {

// 0 if its parts are not known: of other layouts, of classes of Python's, on accelerators, and of values that do not
// lie one after the other. Runs no op.
uint32_t parts_sample(const c10::TensorImpl& tensor);

}  // namespace ac2::internal
