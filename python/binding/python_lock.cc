#include "python/binding/python_lock.h"

#include <Python.h>

#include "ac2/internal/libtorch/python_lock.h"

namespace ac2::python {

void install_python_lock() {
  static const internal::PythonLock lock{
      .let_go = []() -> void* { return PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr; },
      .take_again = [](void* thread) { PyEval_RestoreThread(static_cast<PyThreadState*>(thread)); }};
  internal::set_python_lock(&lock);
}

}  // namespace ac2::python
