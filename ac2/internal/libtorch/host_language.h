// The functions that a binding for another language (Python's package) gives to the library, which links to none.
//
//   static const HostLanguage python{.let_go_of_lock = …, …};
//   install_host_language(&python);      // by the binding's module, once
//   if (const HostLanguage* host = host_language()) host->…
//
// The one door by which a language is known. The functions that ask it are storage_names(), program_holdings(),
// warn_in_op(), is_out_of_memory(), subclass_codec() and WithoutPythonLock.
//
// Threads: any.
#pragma once

#include <c10/core/StorageImpl.h>

#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace ac2::internal {

class SubclassCodec;  // replay/subclass_codec.h

using StorageNames = std::vector<std::pair<const c10::StorageImpl*, std::string>>;

// All of it is set.
struct HostLanguage {
  // Lets go of the language's lock, the GIL. Returns null if this thread has not got it, else something with which the
  // same thread takes it again.
  void* (*let_go_of_lock)() = nullptr;
  void (*take_lock_again)(void* let_go) = nullptr;
  // Whether an error that a function of the language has raised says that memory ran out. No lock is held.
  bool (*is_memory_error)(const std::exception& error) = nullptr;
  // False if it cannot take the warning. Called with whatever locks an op has, and without the language's.
  bool (*take_warning)(const std::string& text) = nullptr;
  // The names of the parameters of all modules. Called where an error is made, without a lock; may take its time.
  StorageNames (*storage_names)() = nullptr;
  // Sentences about the tensors that the program holds by itself. Called as storage_names is.
  std::vector<std::string> (*program_holdings)() = nullptr;
  // Takes tensors apart that code of the language has made of other tensors.
  const SubclassCodec* subclasses = nullptr;
};

// `host` must live for ever. Called once, before any region is opened.
void install_host_language(const HostLanguage* host);
// Null in a program in C++.
const HostLanguage* host_language();
inline bool is_python_there() {
  return host_language() != nullptr;
}

}  // namespace ac2::internal
