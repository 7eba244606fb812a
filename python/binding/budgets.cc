#include "python/binding/budgets.h"

#include <c10/util/Exception.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "ac2/internal/budget/budget.h"
#include "ac2/internal/region/budget_access.h"
#include "ac2/memory_budget.h"
#include "ac2/rank_group.h"
#include "python/binding/copies.h"
#include "python/binding/errors.h"
#include "python/binding/held_object.h"

namespace ac2::python {

namespace py = pybind11;

namespace {

// The runtime takes locks under which tensors, and so Python objects, may die on other threads.
using WithoutGil = py::call_guard<py::gil_scoped_release>;

// ac2._budgets. Where it is loaded, a look-up: to import it again runs Python's machinery of imports.
py::object budgets_in_python() {
  const py::str name("ac2._budgets");
  py::object loaded = py::reinterpret_steal<py::object>(PyImport_GetModule(name.ptr()));
  if (!loaded) {
    PyErr_Clear();
    return py::module_::import("ac2._budgets");
  }
  return loaded;
}

// The number of bytes that a memory_budget= argument gives.
int64_t as_bytes(const py::object& given) {
  return budgets_in_python().attr("as_bytes")(given).cast<int64_t>();
}

bool models_costs(const py::object& given, const py::object& group = py::none()) {
  return budgets_in_python().attr("models_costs")(given, group).cast<bool>();
}

// Ranks that agree by a function of Python's.
class PythonRanks : public RankGroup {
 public:
  explicit PythonRanks(py::object take_largest) : take_largest_(std::move(take_largest)) {}

  void take_largest(at::Tensor& numbers) override {
    const py::gil_scoped_acquire gil;
    calling_python([&] { take_largest_.get()(numbers); });
  }

 private:
  HeldObject take_largest_;
};

std::shared_ptr<RankGroup> ranks_of(const py::object& group) {
  return py::module_::import("ac2._ranks").attr("ranks_of")(group).cast<std::shared_ptr<PythonRanks>>();
}

// `make` takes the ranks, or without a group whether costs are modelled, as the functions of MemoryBudget do.
template <class Make>
MemoryBudget budget_of(const py::object& modelled_costs, const py::object& group, const Make& make) {
  return with_value_errors([&] {
    const bool modelled = models_costs(modelled_costs, group);
    return group.is_none() ? make(modelled) : make(ranks_of(group));
  });
}

// The call that makes such a budget.
struct Call {
  std::string function;          // of ac2
  std::optional<int64_t> bytes;  // its argument
  bool models_costs = false;

  bool has_ranks = false;

  std::string text() const {
    const char* option = has_ranks ? "group=..." : models_costs ? "modelled_costs=True" : "";
    return c10::str(function, "(", bytes ? c10::str(*bytes) : "", bytes && *option != '\0' ? ", " : "", option, ")");
  }
  py::tuple reduced() const {
    if (has_ranks) {
      throw py::type_error(
          "A MemoryBudget with a group cannot be pickled, because process groups cannot. Make it anew in the "
          "process that is to have it.");
    }
    return py::make_tuple(budgets_in_python().attr("made_by"), py::make_tuple(function, bytes, models_costs));
  }
};

Call call_of(const MemoryBudget& budget) {
  const internal::Budget& behind = *internal::BudgetAccess::budget(budget);
  const bool models_costs = behind.costs() == internal::CostSource::kModelled;
  if (behind.peak()) {
    return {"MemoryBudget.peak", budget.bytes(), models_costs, behind.has_ranks()};
  }
  if (behind.has_no_number()) {
    return {"whatever_fits", std::nullopt, models_costs, behind.has_ranks()};
  }
  return {behind.limit().soft ? "MemoryBudget.soft" : "MemoryBudget", budget.bytes(), models_costs, behind.has_ranks()};
}

}  // namespace

BudgetOption budget_option(const py::object& budget) {
  if (budget.is_none()) {
    return {};
  }
  if (py::isinstance<MemoryBudget>(budget)) {
    return budget.cast<MemoryBudget>();
  }
  if (py::isinstance<py::bool_>(budget) || !py::hasattr(budget, "__index__")) {
    throw py::type_error("memory_budget is " + py::repr(budget).cast<std::string>() +
                         "; expected a number of bytes or an ac2.MemoryBudget.");
  }
  return budget.attr("__index__")().cast<int64_t>();
}

void add_budgets(py::module_& module) {
  py::class_<MemoryBudget> budget(module, "MemoryBudget",
                                  R"(MemoryBudget(bytes, modelled_costs=None, group=None)

A number of bytes that regions may hold for backward. Regions that are given the same object share it.

Args:
    bytes: a positive number, or a text such as "64MiB".
    modelled_costs: the costs of ops come from their shapes instead of their times, so that the same program drops
        the same values in every run. By default if a process group of torch.distributed is initialised when the budget
        is made, so that processes of the same shapes drop the same values.
    group: a process group, such as torch.distributed.group.WORLD, whose ranks agree before each backward on what they
        drop. Replays then communicate in the same order on all ranks, however much memory each has and however long its
        sequences are. Costs come from shapes. All ranks must run the same program, and make the budget for the group.)");
  copy_is_itself(budget)
      .def(py::init([](const py::object& bytes, const py::object& modelled_costs, const py::object& group) {
             const int64_t count = with_value_errors([&] { return as_bytes(bytes); });
             return budget_of(modelled_costs, group, [&](auto costs) { return MemoryBudget(count, std::move(costs)); });
           }),
           py::arg("bytes"), py::arg("modelled_costs") = py::none(), py::arg("group") = py::none())
      .def_static(
          "soft",
          [](const py::object& bytes, const py::object& modelled_costs, const py::object& group) {
            const int64_t count = with_value_errors([&] { return as_bytes(bytes); });
            return budget_of(modelled_costs, group,
                             [&](auto costs) { return MemoryBudget::soft(count, std::move(costs)); });
          },
          R"(A budget that is exceeded where there is no other way, instead of an error.

    with ac2.PolicyScope(memory_budget=ac2.MemoryBudget.soft(2 << 30)):
        ...

The first time is a warning; times_over() and most_bytes_over() count.)",
          py::arg("bytes"), py::arg("modelled_costs") = py::none(), py::arg("group") = py::none())
      .def_static(
          "peak",
          [](const py::object& bytes, const py::object& modelled_costs, const py::object& group) {
            const int64_t count = with_value_errors([&] { return as_bytes(bytes); });
            return budget_of(modelled_costs, group,
                             [&](auto costs) { return MemoryBudget::peak(count, std::move(costs)); });
          },
          R"(A bound on what all tensors of a device take together, not on what regions hold alone.

    budget = ac2.MemoryBudget.peak(2 << 30)         # before the model is made: what is older is not counted
    with ac2.PolicyScope(memory_budget=budget):
        loss = model(x)

An allocation that would bring their sum over the bytes first drops values of regions under this budget, whoever
allocates. Where there is nothing left to drop, more is allocated: a warning says so once, and times_over() and
most_bytes_over() count. The CPU, and each device on which such regions compute, has these bytes for itself. On CUDA
they bound what PyTorch's allocator reserves (torch.cuda.set_per_process_memory_fraction, until the budget is gone);
where nothing is left to drop there, its error arrives. Devices that cannot be bounded are named in a warning.)",
          py::arg("bytes"), py::arg("modelled_costs") = py::none(), py::arg("group") = py::none())
      .def("bytes", &MemoryBudget::bytes,
           "The bytes of the budget, or of the peak; of whatever_fits() what it has learned, and 2**63 - 1 while that "
           "is nothing.")
      .def("held_bytes", &MemoryBudget::held_bytes, WithoutGil(), "Held now.")
      .def("times_over", &MemoryBudget::times_over, WithoutGil(),
           "Of a soft budget: for how many ops and saved tensors there was no room so far; of one for a peak: how many "
           "allocations went over it.")
      .def("most_bytes_over", &MemoryBudget::most_bytes_over, WithoutGil(),
           "Of a soft budget: by how many bytes it was exceeded at most.")
      .def("__repr__", [](const MemoryBudget& budget) { return call_of(budget).text(); })
      // So that a module that was wrapped with one can be pickled. The held and learned bytes stay behind.
      .def("__reduce__", [](const MemoryBudget& budget) { return call_of(budget).reduced(); });
  module.def(
      "whatever_fits",
      [](const py::object& modelled_costs, const py::object& group) {
        if (!modelled_costs.is_none() && !py::isinstance<py::bool_>(modelled_costs)) {
          throw py::type_error(
              "whatever_fits was given " + py::repr(modelled_costs).cast<std::string>() +
              "; it takes no number of bytes, only modelled_costs=True or False. A budget of a number is "
              "ac2.MemoryBudget(bytes), a bound on the process's tensors ac2.MemoryBudget.peak(bytes).");
        }
        return budget_of(modelled_costs, group, [](auto costs) {
          const py::gil_scoped_release no_gil;
          return whatever_fits(std::move(costs));
        });
      },
      R"(A memory budget without a number: nothing is dropped while there is memory.

    with ac2.PolicyScope(memory_budget=ac2.whatever_fits()):
        loss = model(x)
    loss.backward()

Where memory runs out, in any op, in or outside of regions, on any thread, the regions under this budget drop what is
cheapest to compute again and frees memory on that device, until there is enough; then the program goes on. What had to go
is learned: later steps drop it in time. torch.OutOfMemoryError, or the CPU's RuntimeError, arrives when nothing is left to
drop. All calls give the same budget. A ``PolicyScope()`` without a policy and a budget has it.
On the CPU the first call puts an allocator in front of PyTorch's.

Args:
    modelled_costs: as for MemoryBudget; each value has a budget of its own.
    group: as for MemoryBudget; each group has a budget of its own.)",
      py::arg("modelled_costs") = py::none(), py::arg("group") = py::none());
  // ac2._ranks makes one for a process group.
  py::class_<PythonRanks, std::shared_ptr<PythonRanks>>(module, "_RankGroup");
  module.def("_rank_group",
             [](py::object take_largest) { return std::make_shared<PythonRanks>(std::move(take_largest)); });
}

}  // namespace ac2::python
