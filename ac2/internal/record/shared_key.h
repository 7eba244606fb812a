// Recording where another library has put a fallback kernel behind kRecordKey already, as PyTorch itself may one day
// for its FakeTensors. A key has one fallback, but kernels of single operators go before it: each operator gets one of
// ours.
//
//   share_key(&intercept);      // once
//   register_new_operators();   // at the opening of each region: those that have been loaded since
//
// There are no typed kernels then: each op takes the boxed way.
//
// An operator that is loaded in an open region is recorded after the region's next op, not before: the dispatcher tells
// of it while it can register nothing. Until then the other library's fallback runs it, as it would without ac2.
//
// Rejected: another key. Those of backends without registrations count as backends, whose kernels win over a fallback;
// sparse and quantised tensors outrank them; above autograd, results are packed before a kernel sees them. Rejected
// too: a kernel for each operator in all cases. An operator that is loaded in an open region would have no kernel of
// ours until the next op.
//
// Threads: any. An op takes no lock here unless the other library runs it.
#pragma once

#include "ac2/internal/record/typed_kernels.h"

namespace ac2::internal {

// Puts `interceptor` behind the key for each operator. Where the other library's mode is on, or one of its tensors is
// among the arguments, the kernel that was there before runs instead.
void share_key(BoxedInterceptor interceptor);
// Does nothing if the key is not shared, or if no operators are new.
void register_new_operators();

}  // namespace ac2::internal
