// A guard: while one lives, a compiler of Python's traces code on this thread, and nothing is recorded.
//
//   const CompilerTracing tracing;
//   …ops on tensors that have no data…
//
// The record key stays included: a compiler notes the thread's keys, and compiles again where they differ.
//
// Threads: concerns the thread that makes it. Guards may be nested.
#pragma once

namespace ac2::internal {

class CompilerTracing {
 public:
  CompilerTracing();
  ~CompilerTracing();
  CompilerTracing(const CompilerTracing&) = delete;
  CompilerTracing& operator=(const CompilerTracing&) = delete;
};

}  // namespace ac2::internal
