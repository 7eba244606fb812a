// A pointer and a bool in the bytes of a pointer.
//
//   FlaggedPointer<TapeHook> previous;
//   previous.set(hook);
//   previous.set_flag(true);       // the pointer stays
//
// Threads: as a plain pointer.
#pragma once

#include <cstdint>

namespace ac2::internal {

template <class T>
class FlaggedPointer {
 public:
  T* get() const { return reinterpret_cast<T*>(bits_ & ~kFlag); }
  void set(T* pointer) {
    static_assert(alignof(T) > 1, "the lowest bit of its address must be free");
    bits_ = reinterpret_cast<uintptr_t>(pointer) | (bits_ & kFlag);
  }
  bool flag() const { return (bits_ & kFlag) != 0; }
  void set_flag(bool flag) { bits_ = (bits_ & ~kFlag) | (flag ? kFlag : 0); }

 private:
  static constexpr uintptr_t kFlag = 1;
  uintptr_t bits_ = 0;
};

}  // namespace ac2::internal
