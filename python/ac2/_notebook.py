"""``%load_ext ac2``: the thread that executes cells runs in a region from then on."""

from typing import Any

from ac2 import _start


def load_ipython_extension(ipython: Any) -> None:
    """Opens a region on this thread, which executes cells, and on each thread that starts from now on.

    What it is told is in the environment: ``%env AC2_MEMORY_BUDGET=soft:8GiB`` before ``%load_ext ac2``. docs/launcher.md.

    Raises:
        ValueError: a variable of the environment is wrong; the message names it.
    """
    _start.check_environment()
    _start.begin_again()
    _start.activate()


def unload_ipython_extension(ipython: Any) -> None:
    """Closes the region of this thread, and says what it did. Threads that run keep theirs."""
    from ac2 import _automatic

    _start.deactivate()
    _automatic.end()
