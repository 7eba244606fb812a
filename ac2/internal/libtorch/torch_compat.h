// What differs between LibTorch versions, and which of LibTorch's extension points ac2 occupies. No other file may
// depend on either.
#pragma once

#include <c10/core/DispatchKey.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/TensorImpl.h>

#include <cstring>

namespace ac2::internal {

// The dispatch key at which ops are recorded: below ADInplaceOrView and Autograd, above every backend. PyTorch is about
// to use it for a FakeTensor mode of its own, so that only this line may name it.
inline constexpr c10::DispatchKey kRecordKey = c10::DispatchKey::Fake;

// The keys that an op goes on to when it has been recorded.
inline constexpr c10::DispatchKeySet kBelowRecordKey{c10::DispatchKeySet::FULL_AFTER, kRecordKey};

// Whether both are the same version counter, for which LibTorch has no function. Two that count nothing are the same.
inline bool same_counter(const c10::VariableVersion& a, const c10::VariableVersion& b) {
  static_assert(sizeof(c10::VariableVersion) == sizeof(void*), "VariableVersion is no longer just a pointer");
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}

}  // namespace ac2::internal
