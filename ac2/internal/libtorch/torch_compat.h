// What differs between LibTorch versions, and which of its extension points ac2 occupies, in one place.
#pragma once

#include <c10/core/DispatchKey.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/TensorImpl.h>

#include <cstring>

namespace ac2::internal {

// Below ADInplaceOrView and Autograd, above every backend. PyTorch is about to use it for a FakeTensor mode of its own,
// so nothing but this line may name it.
inline constexpr c10::DispatchKey kRecordKey = c10::DispatchKey::Fake;

// The keys that an op recorded at kRecordKey goes on to.
inline constexpr c10::DispatchKeySet kBelowRecordKey{c10::DispatchKeySet::FULL_AFTER, kRecordKey};

// Whether both count with the same counter, which LibTorch offers no way to ask. Two that count nothing do.
inline bool same_counter(const c10::VariableVersion& a, const c10::VariableVersion& b) {
  static_assert(sizeof(c10::VariableVersion) == sizeof(void*), "VariableVersion is no longer just a pointer");
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}

}  // namespace ac2::internal
