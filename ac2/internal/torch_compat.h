// What differs between LibTorch versions, and which of its extension points ac2 occupies, in one place.
#pragma once

#include <c10/core/DispatchKey.h>
#include <c10/core/DispatchKeySet.h>

namespace ac2::internal {

// Below ADInplaceOrView and Autograd, above every backend. PyTorch is about to use it for a FakeTensor mode of its own,
// so nothing but this line may name it.
inline constexpr c10::DispatchKey kRecordKey = c10::DispatchKey::Fake;

// The keys that an op recorded at kRecordKey goes on to.
inline constexpr c10::DispatchKeySet kBelowRecordKey{c10::DispatchKeySet::FULL_AFTER, kRecordKey};

}  // namespace ac2::internal
