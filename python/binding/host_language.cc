#include "python/binding/host_language.h"

#include <Python.h>

#include "ac2/internal/libtorch/host_language.h"
#include "python/binding/memory_errors.h"
#include "python/binding/storage_names.h"
#include "python/binding/subclasses.h"
#include "python/binding/warnings_in_ops.h"

namespace ac2::python {

void install_python() {
  static const internal::HostLanguage python{
      .let_go_of_lock = []() -> void* { return PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr; },
      .take_lock_again = [](void* thread) { PyEval_RestoreThread(static_cast<PyThreadState*>(thread)); },
      .is_memory_error = &is_memory_error,
      .take_warning = &keep_for_the_end_of_a_scope,
      .storage_names = &names_of_all_modules,
      .program_holdings = &what_the_program_holds,
      .subclasses = &subclass_codec()};
  internal::install_host_language(&python);
}

}  // namespace ac2::python
