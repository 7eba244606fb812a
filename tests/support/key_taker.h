// A library that has put a fallback kernel behind the dispatch key at which ac2 records, before ac2 could: whatever is
// linked to this has it.
#pragma once

#include <ATen/core/Tensor.h>

namespace ac2::test {

// How often the fallback has run. It hands on to the backend.
int fallback_calls();

// A tensor that the library feels responsible for: a copy of `tensor` with the key.
at::Tensor tensor_with_key(const at::Tensor& tensor);

// The library's mode, in which it wants to see every op of the thread.
class TakersMode {
 public:
  TakersMode();
  ~TakersMode();
  TakersMode(const TakersMode&) = delete;
  TakersMode& operator=(const TakersMode&) = delete;

  static bool is_on();

 private:
  bool was_on_;
};

}  // namespace ac2::test
