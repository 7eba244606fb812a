// ac2._C: the runtime for Python. The package ac2 beside it is what people import.
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include "python/binding/automatic.h"
#include "python/binding/budgets.h"
#include "python/binding/chunks.h"
#include "python/binding/decisions.h"
#include "python/binding/errors.h"
#include "python/binding/exchange_api.h"
#include "python/binding/forms.h"
#include "python/binding/host_language.h"
#include "python/binding/kernels.h"
#include "python/binding/memory_errors.h"
#include "python/binding/memory_fraction.h"
#include "python/binding/modules.h"
#include "python/binding/plans.h"
#include "python/binding/replayable.h"
#include "python/binding/scope.h"
#include "python/binding/storage_names.h"
#include "python/binding/warnings_in_ops.h"

PYBIND11_MODULE(_C, module) {
  ac2::python::translate_errors();
  ac2::python::add_decisions(module);
  ac2::python::add_policies(module);
  ac2::python::add_budgets(module);
  ac2::python::add_scope(module);
  ac2::python::add_forms(module);
  ac2::python::add_modules(module);
  ac2::python::add_kernels(module);
  ac2::python::add_exchange_api(module);
  ac2::python::add_memory_fraction(module);
  ac2::python::add_plans(module);
  ac2::python::add_chunks(module);
  ac2::python::add_replayable_functions(module);
  ac2::python::add_storage_names(module);
  ac2::python::add_warnings_in_ops(module);
  ac2::python::add_automatic(module);
  ac2::python::add_memory_errors(module);
  ac2::python::install_python();
  // The torch that it was compiled with, for the check at import.
  module.attr("torch_version") = TORCH_VERSION;
}
