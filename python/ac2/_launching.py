"""Whether the package is imported only because ``python -m ac2`` or the command ``ac2`` begins."""

import sys


def is_launching() -> bool:
    """Then torch is left to the program: it may set variables of the environment that torch reads when it is imported.

    Where a future Python would not be recognised, torch is imported earlier, and nothing else is different.
    """
    frame = sys._getframe()
    while frame is not None:
        name = frame.f_globals.get("__name__")
        function = frame.f_code.co_name
        if name == "runpy" and function == "_get_module_details" and frame.f_locals.get("mod_name") == "ac2.__main__":
            return True
        if name == "__main__" and frame.f_globals.get("__file__") == sys.argv[0] and "ac2._launcher" in frame.f_code.co_names:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
