// A function that the program has declared to be an op (ac2/replayable.h) runs on this thread.
//
//   const DeclaredKernel declared;
//   …the function…
//
// The function only reads what it is given, and writes to what it has made itself. So while one lives, nothing that the
// function hands out, to kernels or as pointers, is exposed.
//
// Threads: concerns the thread that makes it. They may be nested.
#pragma once

namespace ac2::internal {

class DeclaredKernel {
 public:
  DeclaredKernel() { ++depth(); }
  ~DeclaredKernel() { --depth(); }
  DeclaredKernel(const DeclaredKernel&) = delete;
  DeclaredKernel& operator=(const DeclaredKernel&) = delete;

  static bool here() { return depth() > 0; }

 private:
  static int& depth() {
    static thread_local int depth = 0;
    return depth;
  }
};

}  // namespace ac2::internal
