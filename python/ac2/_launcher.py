"""``python -m ac2`` and the command ``ac2``: runs a program as ``python`` would, as a whole in a region. docs/launcher.md.

torch is not imported here. The region opens when the program has imported it (``ac2._start``).
"""

import argparse
import builtins
import io
import os
import pkgutil
import runpy
import sys
import types
from importlib import machinery
from typing import Any, List, Optional, Tuple

from ac2 import _start

_USAGE = "%(prog)s [options] (script.py | directory | file.zip | -m module | -c code) [argument ...]"

_DESCRIPTION = """Runs a Python program, as python would, as a whole in a region of ac2: where memory runs out, what is
cheapest to compute again is dropped, and the program goes on. The program needs no change. Options come before the
program; all that follows is the program's."""

_EPILOG = """The same by environment, for programs that start others (torchrun, accelerate launch, Slurm): AC2_MEMORY_BUDGET,
AC2_POLICY, AC2_FORMS, AC2_CHUNKED_LOSS, AC2_REPORT, AC2_VERIFY=1, AC2_QUIET=1. An option wins over its variable."""


def _budget(text: str) -> str:
    try:
        _start.check_budget(text, "the budget")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _chunked_loss(text: str) -> str:
    try:
        _start.check_chunked_loss(text, "the loss's chunk")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _parser() -> argparse.ArgumentParser:
    prog = "ac2" if os.path.basename(sys.argv[0]) == "ac2" else "python -m ac2"
    parser = argparse.ArgumentParser(
        prog=prog, usage=_USAGE, description=_DESCRIPTION, epilog=_EPILOG, allow_abbrev=False, add_help=False
    )
    parser.add_argument("-h", "--help", action="help", help="prints this")
    parser.add_argument("-m", dest="module", action="store_true", help="the program is a module")
    parser.add_argument("-c", dest="code", action="store_true", help="the program is a text")
    parser.add_argument(
        "--memory-budget",
        type=_budget,
        metavar="BYTES",
        help="auto (nothing is dropped while there is memory; the default), 8GiB (what regions hold for backward), soft:8GiB "
        "(the same, exceeded where there is no other way), or peak:20GiB (all tensors of a device together)",
    )
    parser.add_argument(
        "--policy",
        metavar="NAME",
        help="what is saved, such as save_compute_intensive; without --memory-budget the policy decides alone",
    )
    parser.add_argument(
        "--forms",
        metavar="LIST",
        help="ways in which the budget may hold values besides computing them again: one_bit, file:FOLDER, quantized:8, "
        "narrow:bfloat16, host_memory, with commas between them",
    )
    parser.add_argument(
        "--chunked-loss",
        type=_chunked_loss,
        metavar="BYTES",
        help="auto, or the bytes of a chunk, such as 256MiB: causal language models of transformers compute their logits and "
        "their loss a few tokens at a time in training; sums are added up in another order",
    )
    parser.add_argument("--report", metavar="PAGE.html", help="writes a page about the memory over time at the end")
    parser.add_argument("--verify", action="store_true", help="compares each replayed value with what forward computed; slow")
    parser.add_argument("--quiet", action="store_true", help="says nothing at the end")
    return parser


_VALUES = ("--memory-budget", "--policy", "--forms", "--chunked-loss", "--report")


def _split(arguments: List[str]) -> Tuple[List[str], str, List[str]]:
    """The options, how the program is given ("", "-m" or "-c"; "none" if it is missing), and the program with its arguments."""
    i = 0
    while i < len(arguments):
        argument = arguments[i]
        if argument == "--":
            return arguments[:i], "" if arguments[i + 1 :] else "none", arguments[i + 1 :]
        for flag in ("-m", "-c"):
            if argument.startswith(flag):
                rest = [argument[2:]] if argument[2:] else []
                return arguments[:i], flag, rest + arguments[i + 1 :]
        if argument == "-" or not argument.startswith("-"):
            return arguments[:i], "", arguments[i:]
        i += 2 if argument in _VALUES else 1
    return arguments, "none", []


def _settle(options: argparse.Namespace) -> None:
    """Puts what the command line says into the environment, for this process and those that it starts."""
    for name, value in (
        (_start.BUDGET, options.memory_budget),
        (_start.POLICY, options.policy),
        (_start.FORMS, options.forms),
        (_start.CHUNKED_LOSS, options.chunked_loss),
        (_start.REPORT, options.report and os.path.abspath(options.report)),
        (_start.VERIFY, "1" if options.verify else None),
        (_start.QUIET, "1" if options.quiet else None),
    ):
        if value is not None:
            os.environ[name] = value


def main(arguments: Optional[List[str]] = None) -> int:
    """Does not return where the program ends with an exception or with sys.exit()."""
    parser = _parser()
    given, how, program = _split(sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(given)
    if how == "none":
        parser.error("no program was given: a script, a directory or a zip file, -m module, or -c code.")
    if not program:
        parser.error(f"{how} is without a {'module' if how == '-m' else 'program'}.")
    _settle(options)
    try:
        _start.check_environment()
    except ValueError as error:
        parser.error(str(error))
    # The program imports the package itself; where `python -m ac2` has imported it, that was a beginning of it.
    if getattr(sys.modules.get("ac2"), "_is_launching", False):
        del sys.modules["ac2"]
    _start.activate()
    try:
        return _run(how, program)
    except SystemExit:
        raise
    except BaseException as error:
        _start.note_error(error)
        _leave_out_our_frames(error)
        raise


def _leave_out_our_frames(error: BaseException) -> None:
    """From the traceback that is printed: python's own begins with the program."""
    hook = sys.excepthook

    def without_our_frames(kind: Any, value: Any, traceback: Any) -> None:
        sys.excepthook = hook
        if value is error:
            ours = traceback
            while ours is not None and ours.tb_frame.f_code is not _run.__code__:
                ours = ours.tb_next
            if ours is not None:
                traceback = ours.tb_next
            while traceback is not None and traceback.tb_frame.f_code is _code_of.__code__:
                traceback = traceback.tb_next
            _leave_out_loader(traceback)
            value.__traceback__ = traceback
        hook(kind, value, traceback)

    sys.excepthook = without_our_frames


def _leave_out_loader(traceback: Any) -> None:
    """From the frames of an error of torch's own import."""
    while traceback is not None:
        while traceback.tb_next is not None and traceback.tb_next.tb_frame.f_code is _start.LOADER_CODE:
            traceback.tb_next = traceback.tb_next.tb_next
        traceback = traceback.tb_next


def _new_main() -> types.ModuleType:
    main_module = types.ModuleType("__main__")
    vars(main_module).update(__builtins__=builtins, __annotations__={})
    main_module.__loader__ = machinery.BuiltinImporter  # of a program that is no file
    sys.modules["__main__"] = main_module
    return main_module


def _set_path(first: str) -> None:
    """Puts the program's folder where python has put that of the launcher."""
    if getattr(sys.flags, "safe_path", False) or sys.flags.isolated:
        return
    if sys.path:
        sys.path[0] = first
    else:
        sys.path.append(first)


def _run(how: str, program: List[str]) -> int:
    """All frames up to this one are ours."""
    sys.argv[:] = program
    if how == "-m":
        sys.argv[0] = "-m"
        _set_path(os.getcwd())
        _new_main()
        runpy._run_module_as_main(program[0])  # type: ignore[attr-defined]
    elif how == "-c":
        sys.argv[0] = "-c"
        _set_path("")
        module = _new_main()
        exec(compile(program[0], "<string>", "exec", dont_inherit=True), vars(module))
    elif program[0] == "-":
        _set_path("")
        module = _new_main()
        exec(compile(sys.stdin.read(), "<stdin>", "exec", dont_inherit=True), vars(module))
    elif pkgutil.get_importer(program[0]) is not None:
        _set_path(os.path.abspath(program[0]))
        _new_main()
        runpy._run_module_as_main("__main__", False)  # type: ignore[attr-defined]
    else:
        path = os.path.abspath(program[0])
        code = _code_of(path)
        if code is None:
            _start.deactivate()
            return 2
        _set_path(os.path.dirname(os.path.realpath(path)))
        module = _new_main()
        vars(module).update(__file__=path, __cached__=None)
        module.__loader__ = _loader_of(path)
        exec(code, vars(module))
    return 0


def _loader_of(path: str) -> Any:
    kind = machinery.SourcelessFileLoader if path.endswith(".pyc") else machinery.SourceFileLoader
    return kind("__main__", path)


def _code_of(path: str) -> Any:
    """None, and python's words on stderr, if it cannot be read."""
    try:
        with io.open_code(path) as file:
            code = pkgutil.read_code(file)  # type: ignore[attr-defined]
        if code is None:
            with io.open_code(path) as file:
                code = compile(file.read(), path, "exec", dont_inherit=True)
        return code
    except OSError as error:
        python = getattr(sys, "orig_argv", [sys.executable])[0]
        _start.say(f"{python}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}\n")
        return None
