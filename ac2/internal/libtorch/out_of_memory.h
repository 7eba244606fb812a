// Errors that say that memory ran out: told from others, and told what regions hold.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/Exception.h>

#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <utility>

namespace ac2::internal {

// True for c10::OutOfMemoryError, std::bad_alloc, and what LibTorch's CPU allocator throws (c10::alloc_cpu(), whose
// error has no type of its own). Also for oneDNN's errors about what it could not create or execute, whose most likely
// reason it is, and for errors that the host language knows. No lock may be held.
bool is_out_of_memory(const std::exception& error);

// The call in which memory ran out. Some arguments may be None where the op has used them up.
struct FailedCall {
  std::string_view op;  // "aten::mm"
  c10::ArrayRef<c10::IValue> arguments;
};

// The text to add to an error that says that memory ran out. Empty for nothing. `call` is null where it is not known.
using OutOfMemoryNote = std::string (*)(const c10::Error& error, const FailedCall* call);
// Installed once. The note is asked for without a lock of ours. On its way to the program an error passes the
// interceptor, a hook that unpacks, and the engine. The first of them adds the note.
void set_out_of_memory_note(OutOfMemoryNote note);
// Adds the note to `error`, line by line, if that says that memory ran out and has no note yet. Throws nothing.
void add_out_of_memory_note(c10::Error& error, const FailedCall* call = nullptr) noexcept;

// Returns the result of `call`, whose errors about memory get the note. std::bad_alloc is caught as well, and
// thrown again: where nobody catches an error no stack is unwound, and locks of ours would stay locked while the
// program's terminate handler runs.
template <class Call>
decltype(auto) with_out_of_memory_note(Call&& call) {
  try {
    return std::forward<Call>(call)();
  } catch (c10::Error& error) {
    add_out_of_memory_note(error);
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  }
}
// The same, where `failed` returns the FailedCall.
template <class Call, class Failed>
decltype(auto) with_out_of_memory_note(Call&& call, Failed&& failed) {
  try {
    return std::forward<Call>(call)();
  } catch (c10::Error& error) {
    const FailedCall failed_call = failed();
    add_out_of_memory_note(error, &failed_call);
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  }
}

}  // namespace ac2::internal
