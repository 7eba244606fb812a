"""Plans: a step is recorded once, and what to keep for backward is chosen for the whole of it."""

import math
import os
from typing import Any, Callable, Optional, Sequence, Union

import torch

from ac2 import _C
from ac2._budgets import BudgetLike, as_bytes, models_costs
from ac2._form import Form, as_forms
from ac2._scope import watch_python


class StepPlanner:
    """Records a step once, so that plans for it can be made and compared.

        planner = ac2.StepPlanner(lambda: loss_fn(model(x), y).backward())
        plan = planner.plan("64MiB")
        print(plan.summary)
        with ac2.PolicyScope(plan):
            loss = loss_fn(model(x), y)
        loss.backward()

    The scope must begin where ``step`` began, as the outermost of its thread, because the plan counts ops from there.
    If the program leaves the plan, the rest of the region keeps what the bytes allow, and a warning says so once.

    Args:
        step: a callable without arguments. It is a step like any other and has its effects: it adds to gradients and
            moves generators on. It may leave out the backward, but tight plans may then be too small for it by some values,
            so that results are dropped and more is replayed. It may run on tensors of the meta device.
        modelled_costs: costs of ops come from their shapes, so that the same step always has the same plan. By default
            where a process group of torch.distributed is initialised, so that processes of the same shapes plan alike.
        recording_budget: the bytes that the recording may hold; without it, what the step needs.
        forms: the ways, besides computing again, in which the plan may do without the bytes of a result: a list of
            ``ac2.forms`` and of the program's own (``ac2.Form``). If all of them are exact, gradients have the bits of plain
            PyTorch. Each result of ``step`` is packed once in each form, to find its bytes and what packing costs. Use
            ``modelled_costs=True`` on an accelerator, because there a clock measures how long it takes to queue an op.
        copy_bytes_per_forward: with ``ac2.forms.host_memory()``: the bytes that a copy moves, each way, in the time that the
            device takes for the step's forward. For 25 GB/s and a forward of 120 ms that is ``25e9 * 0.12``. Without it a
            few results of the step are copied while it is recorded, and timed beside its ops.
        step_peak_on: a device whose memory is measured while the step is recorded, so that summaries have
            ``step_peak_bytes``: "cpu", "cuda" or a ``torch.device``. On the CPU an allocator of ac2's comes in front of
            PyTorch's for that, as with whatever_fits(); on an accelerator the peaks of its statistics begin anew, as after
            ``torch.cuda.reset_peak_memory_stats()``. Not beside forms that pack.
        in_flight: how many such steps are in flight, as micro-batches are in a pipeline: their forwards have run, and their
            backwards are to come, one after the other. The bytes of plan() are then for all of them together,
            ``(in_flight - 1) * forward_bytes + peak_bytes <= bytes``, and smallest() is the plan for which that sum is
            smallest. Summaries, summarize() and budget() are about one step.

    Raises:
        RuntimeError: inside a region, if nothing was recorded that autograd holds, and with ``ac2.forms.host_memory()`` if no
            result is on a device from which values can be copied (nor on the meta device), or if the speed of copies is not
            given and cannot be measured. Exceptions of ``step`` and of the forms pass through.
    """

    def __init__(
        self,
        step: Callable[[], Any],
        *,
        modelled_costs: Optional[bool] = None,
        recording_budget: BudgetLike = None,
        forms: Sequence[Form] = (),
        copy_bytes_per_forward: Optional[float] = None,
        step_peak_on: Union[str, torch.device, None] = None,
        in_flight: int = 1,
    ) -> None:
        if not callable(step):
            raise TypeError(f"step is {step!r}; expected a callable without arguments that runs one step.")
        watch_python()
        recording = None if recording_budget is None else as_bytes(recording_budget, "recording_budget")
        speed = None if copy_bytes_per_forward is None else _as_speed(copy_bytes_per_forward)
        device = None if step_peak_on is None else torch.device(step_peak_on)
        steps = _as_steps(in_flight)
        self._planner = _C.StepPlanner(step, models_costs(modelled_costs), recording, speed, device, steps, as_forms(forms))

    def plan(self, bytes: BudgetLike) -> "_C.Plan":
        """The plan for so many bytes: PolicyScope takes it as a policy, and its ``summary`` says what it comes to.

        The bytes are those of all steps in flight together.

        Raises RuntimeError if no plan is that small; the error says how small one is.
        """
        return self._planner.plan(as_bytes(bytes))

    def smallest(self) -> "_C.Plan":
        """The plan with the fewest bytes that has been found. plan() may later find a smaller one.

        The bytes are those of all steps in flight together.
        """
        return self._planner.smallest()

    def summarize(self, keeps: Callable[["_C.PlannedOp"], Any]) -> "_C.PlanSummary":
        """The summary of a step that keeps the results of exactly those ops for which ``keeps(op)`` is true.

        ``op`` has ``name``, ``index``, ``bytes`` and ``cost``. The function is called in the order of the program. It is not
        asked about ops whose results the step saves or recomputes whatever a plan chooses: because of a MUST_* decision, a
        tag, or a policy that prefers to recompute, because they cannot be computed again, or because the step overwrites
        them.
        """
        if not callable(keeps):
            raise TypeError(f"keeps is {keeps!r}; expected a function that is given an op and says whether its results are kept.")
        return self._planner.summarize(keeps)

    def budget(self, bytes: BudgetLike) -> "_C.PlanSummary":
        """What a memory budget of so many bytes (``PolicyScope(memory_budget=bytes)``) would cost this step in place of a plan.

        Computed from the recording: what would be held, and which ops would run again, some of them several times. No form is
        used. The figures are those of a first step, in which the budget knows nothing of what is to come. A real step may
        differ: its costs are measured anew, and it counts bytes that the program has let go of late.

        Raises RuntimeError if so few bytes cannot be met, or if ops would run again more than 64 times on average.
        """
        return self._planner.budget(as_bytes(bytes))


def _as_speed(given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        raise TypeError(f"copy_bytes_per_forward is {given!r}; expected a number of bytes, such as 25e9 * 0.12.")
    if not 0 < given < math.inf:
        raise ValueError(f"copy_bytes_per_forward is {given!r}; expected a positive number of bytes.")
    return float(given)


def _as_steps(given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int):
        raise TypeError(f"in_flight is {given!r}; expected a number of steps, such as 4.")
    if given < 1:
        raise ValueError(f"in_flight is {given!r}; expected 1 or more steps. It counts the step that is in backward, too.")
    return given


def plan(
    step: Callable[[], Any],
    bytes: BudgetLike,
    *,
    modelled_costs: Optional[bool] = None,
    recording_budget: BudgetLike = None,
    forms: Sequence[Form] = (),
    copy_bytes_per_forward: Optional[float] = None,
    in_flight: int = 1,
) -> "_C.Plan":
    """A plan that keeps for backward what is cheapest within ``bytes``, chosen for the whole of ``step``.

        plan = ac2.plan(lambda: loss_fn(model(x), y).backward(), "64MiB")
        for x, y in data:
            with ac2.PolicyScope(plan):             # a policy that has its budget with it
                loss = loss_fn(model(x), y)
            loss.backward()

    The step is recorded within ``bytes`` unless ``recording_budget`` says otherwise. See StepPlanner.
    """
    most = as_bytes(bytes)
    recording = most if recording_budget is None else recording_budget
    planner = StepPlanner(
        step,
        modelled_costs=modelled_costs,
        recording_budget=recording,
        forms=forms,
        copy_bytes_per_forward=copy_bytes_per_forward,
        in_flight=in_flight,
    )
    return planner.plan(most)


def load_plan(path: Union[str, "os.PathLike[str]"], *, forms: Sequence[Form] = ()) -> "_C.Plan":
    """The plan that ``plan.save(path)`` wrote, here or in C++. ``ac2.Plan.load`` is the same function.

        with ac2.PolicyScope(ac2.Plan.load("plan.json")):
            loss = loss_fn(model(x), y)

    Whether the plan is one for this program's step is seen while the step runs, op by op, as for any plan.

    Args:
        forms: forms of the program's own that the plan may use, by their names.

    Raises:
        RuntimeError: a file that cannot be read, is no plan, is damaged, or has an operator or a form that this process
            lacks.
    """
    return _C.load_plan(path, as_forms(forms))


_C.Plan.load = staticmethod(load_plan)  # type: ignore[method-assign, assignment]


def current_decision(op: Any, inputs: Any = None, outputs: Any = None) -> Any:
    """Asks the policies in force, from the program's own code, how they would decide for an op.

        if ac2.current_decision("aten::_softmax") == ac2.CheckpointPolicy.PREFER_RECOMPUTE: ...

    Args:
        op: "aten::add.Tensor", "aten::mm" for the overload without a name, or ``torch.ops.aten.mm.default``.
        inputs, outputs: for policies that look at the call, one object for each argument and each return of the op's
            schema. Without them only policies that are constant or by operator can answer.

    Returns:
        A member of ac2.CheckpointPolicy, the name of a form, "SaveWithHooks", or None where nothing is recorded: outside all regions, in
        DisableCheckpointing, in the functions of a form, and in a backward that runs inside a region.

    Raises:
        RuntimeError: an unknown op; overloads that are decided differently; a policy that has to see the call.
        ValueError: inputs or outputs that are not those of the op's schema.
    """
    return _C.current_decision(op, inputs, outputs)
