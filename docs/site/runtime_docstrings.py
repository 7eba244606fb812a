"""Docstrings of what C++ defines (``ac2._C``, ``ac2.policies``), whose stubs have none: an extension of griffe, and a program.

    python docs/site/runtime_docstrings.py > docstrings.json       with a Python that finds ac2

The extension reads the file that ``AC2_SITE_DOCSTRINGS`` names. tools/site calls both.
"""
import inspect
import json
import os
import sys


def docstrings(ac2):
    """By the path of a name its docstring, without the signature that pybind11 begins it with."""
    found = {}
    for path, module in (("ac2._C", ac2._C), ("ac2.policies", ac2.policies)):
        for name, value in vars(module).items():
            if name.startswith("_") or inspect.ismodule(value):
                continue
            found[f"{path}.{name}"] = _text_of(name, value)
            if inspect.isclass(value):
                members = {each: member for each, member in vars(value).items() if not each.startswith("_")}
                found |= {f"{path}.{name}.{each}": _text_of(each, member) for each, member in members.items()}
    return {path: text for path, text in found.items() if text}


def _text_of(name, value):
    text = inspect.getdoc(getattr(value, "__func__", value)) or ""
    if text.startswith(name + "("):
        text = text.partition("\n")[2]
    return text.strip()


if __name__ == "__main__":
    import ac2

    json.dump(docstrings(ac2), sys.stdout, indent=1)
else:
    import griffe

    class RuntimeDocstrings(griffe.Extension):
        def on_package(self, *, pkg, **kwargs):
            path = os.environ.get("AC2_SITE_DOCSTRINGS")
            if pkg.path != "ac2" or not path:
                return
            with open(path) as file:
                texts = json.load(file)
            for name, text in texts.items():
                try:
                    described = pkg[name.removeprefix("ac2.")]
                except KeyError:  # it has no stub: it is not for users
                    continue
                if not described.is_alias and described.docstring is None:
                    described.docstring = griffe.Docstring(text, parent=described, parser="google")
