#!/usr/bin/env python3
"""Writes docs/api.md: every public name of ac2, in C++ as the headers declare it, and in Python with its parameters.

usage: tools/api_page.py > docs/api.md      with a Python that finds ac2

The C++ is what the public headers say, without comments, bodies and what is not public. python/tests/test_api_page.py holds the page
against the headers and the package, so that a new name is in it.
"""
import enum
import inspect
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
COLUMNS = 140

INTRODUCTION = """# The public names

All of them, in C++ in the order in which `ac2/ac2.h` includes the headers, and then in Python. What each means is in the comments of its
header, and in `help()`. [guide.md](guide.md) and [python.md](python.md) go by task.

This page is written by `tools/api_page.py`, and a test holds it against the headers and the package.

What the declarations do not say:

- **Headers:** `ac2/ac2.h` has everything but the ready-made policies, which are in `policies/policies.h`.
- **The version** is for the preprocessor in `AC2_VERSION_MAJOR`, `AC2_VERSION_MINOR` and `AC2_VERSION_PATCH` (`ac2/version.h`), too.
  [stability.md](stability.md) says what a version promises.
- **A policy** is a name (`"speed"`), a `CheckpointPolicy`, a form, one of `ac2::policies`, or a function. In C++ the function takes an
  `OpContext`; in Python it is `policy_fn(ctx, op, *args, **kwargs)`, as for PyTorch's selective checkpointing, and a list of ops to save is
  a policy too. The function returns a `CheckpointPolicy`, a bool (true is MUST_SAVE, false is PREFER_RECOMPUTE), a form, or
  `SaveWithHooks`. `by_operator` marks a function that looks at the operator alone; in Python it is called with `(ctx, op)`.
- **MUST and PREFER:** of the policies of nested scopes, from the outermost to the innermost, a later PREFER replaces an earlier one, and a
  MUST replaces any PREFER and is replaced by none. Two different MUSTs for one op are an error. `tag_with_policy` decides for one tensor,
  whatever policies say.
- **MUST under a budget:** what a policy says MUST_SAVE of is never dropped, and counts. A `true`, a form, a list of ops, `save_ops`,
  `save_compute_intensive`, `speed` and `memory` say so of what they save. A budget without a policy may drop everything, and with
  `recompute_all` recomputes nothing while there is room.
- **A plan** is for one scope around each step, made anew for each step; a `memory_budget` beside it holds if it is smaller.
- **What a budget counts** is `MemoryBudget.held_bytes()`. `TraceStats.saved_bytes` has the program's parameters and inputs besides.
- **Bytes** of budgets, plans and chunks are a number, or a text: a number with KiB, MiB, GiB or TiB, `"1.5GiB"`. In C++ also
  `2 * ac2::GiB`, or `2_GiB` with `using namespace ac2::literals`.
- **Ops by name:** `"aten::add.Tensor"`; without an overload, `"aten::mm"`, all overloads. Python takes PyTorch's op objects too.
- **Modules by pattern:** `*` is anything within one part of a name and `**` any number of parts, so that `"blocks.*"` is `blocks.0` and not
  `blocks.0.up`, which is `"blocks.*.up"` or `"**.up"`. Of the rules of `by_module` the first that matches counts, and a rule covers all
  that runs inside the module. In C++ `by_module` knows wrapped modules, or, with the second argument, those of `named_parameters()`.
- **`expose(tensor)`** before code writes there that no dispatcher sees: backward then sees what was written, as plain PyTorch does.
- **A form's costs** (`estimate`) are in nanoseconds of an imagined machine, whose copy of a tensor takes a nanosecond for 5 bytes. Without
  an estimate packing is timed.
- **`replayable`:** a name has letters, digits and underscores. Its op is `replayable::NAME`, has no derivative unless it
  is made of a `torch.autograd.Function`, and belongs into the forward of one otherwise.
- **`in_chunks`** needs one of `chunks` and `bytes`. `reduce` is `"sum"`, `"mean"` or nothing: results are concatenated. `exact` is an
  error for whatever might not have the bits of one call: products of matrices, sums over rows, gradients of what is not cut. In C++ the
  function takes as many tensors as it is given, or a `std::vector` of them.
- **`query_chunked_attention`** takes in Python the arguments of `F.scaled_dot_product_attention`, and in C++ the same as options.
- **Options of a scope:** `verify` compares what is computed again with forward, for trying ops of one's own; `timeline` keeps the log that
  `explain` and `write_report` go by; `offload` says how what policies offload leaves; `gather_units` has parameters that FSDP has let go of
  gathered for replays; `keep_for_next_backward` is for a backward in two halves; `forms` are what a budget may use besides dropping. Of
  modules: `keep_output` saves what forward returns, `offload_inputs` offloads its arguments, `off_in_eval` and `off_under_no_grad` open no
  region there.
- **A wrapped module** (`auto b = ac2::checkpoint_wrapper(Block(8), "speed", {.verify = true})`) is used as the plain one is.
  `b->checkpointing()` has its policy, options and last trace. A member is declared as `ac2::Checkpointed<Block> b{nullptr}`.
- **`checkpoint_wrapper` and `apply_checkpointing`** take as options, in Python, all of `PolicyScope` by name, `off_in_eval` and
  `off_under_no_grad`. `keep_output` and `offload_inputs` are C++'s alone.
- **`ac2.checkpoint`** as a decorator needs parentheses: `@ac2.checkpoint()`.
- **In both languages:** options stand in braces in C++, `{.verify = true}`, and are keyword arguments in Python. A policy is no option but
  the argument before them; in C++ `apply_checkpointing` takes `{.modules = …, .policy = …, .options = {…}}`. Python's list below has a line
  for each name, which holds for C++ too.
- **In one language only:** in Python `report`, `last_trace`, `managed_elsewhere`, `unit`, `patch_torch_checkpoint`,
  `create_selective_checkpoint_contexts`; in C++ `find_checkpointing`, `ModuleSelector`, `Policy::with_names` and `Policy::factory`.
- **`ac2/old_names.h`** has names of older programs, until 0.2: `ac2::nn::`, `save_plan`, `load_plan`.
"""


def public_headers(root):
    """The headers that users include, in the order in which they are read."""
    return list(dict.fromkeys([*_included(root, "ac2/ac2.h"), *_included(root, "policies/policies.h")]))


def _included(root, header):
    """Of a header: the public ones that it includes, each after those that it includes itself."""
    paths = []
    for path in re.findall(r'^#include "((?:ac2|policies)/[^"]+)"', (root / header).read_text(), re.M):
        if "/internal/" not in path:
            paths += [each for each in [*_included(root, path), path] if each not in paths]
    return paths


# What says nothing to somebody who looks for a name.
_LEFT_OUT = re.compile(
    r"\s*(?:public:|friend |static_assert|.*\bCalls\*|.*\binternal::|.*operator=\(|(?:virtual )?~\w+\(|(\w+)\((?:const )?\1&(?: \w+)?\) = |"
    r"(?:class|struct) \w+;$|(?:inline )?namespace (?:ac2 )?\{$)"
)


def declarations(text):
    """What a header declares for its users, a string."""
    text = re.sub(r"^namespace ((?:ac2::)?internal) \{(?:.*?^\}  // namespace \1$|[^}]*?^\}$)\n?", "", text, flags=re.M | re.S)
    text = re.sub(r"^namespace (?:c10|at|torch) \{.*?^\}.*?$\n?", "", text, flags=re.M | re.S)
    text = re.sub(r"^\}  // namespace ac2$", "", text, flags=re.M)
    text = re.sub(r"[ \t]*//.*$", "", text, flags=re.M)
    text = re.sub(r"^#.*\n", "", text, flags=re.M).replace("[[nodiscard]] ", "")
    lines, hidden, skipped = [], None, None
    for line in text.split("\n"):
        indent = len(line) - len(line.lstrip())
        if skipped is not None:  # a body
            if line.strip().startswith("}") and indent <= skipped:
                skipped = None
            continue
        if hidden is None and re.match(r"\s*(private|protected):", line):
            hidden = indent
            continue
        if hidden is not None:
            if not (line.strip() == "public:" and indent == hidden) and not (line.strip() == "};" and indent < hidden):
                continue
            hidden = None
        has_body = line.endswith(" {") and not re.search(r"\b(class|struct|enum|namespace)\b|^ +: public", line)
        if has_body:
            skipped = indent
        if _LEFT_OUT.match(line):
            continue
        if has_body:
            line = line[:-2] + ";"
        if re.match(r"\s+: (?!public)\w+\(", line):  # what a constructor begins with
            lines[-1] += ";"
            skipped = indent if line.endswith("{") else None
            continue
        line = re.sub(r"(\)(?: const| noexcept)*)(?: : [\w_]+\(.*\))?(?: \{.*\}|;)$", r"\1;", line)
        lines.append(line.rstrip())
    text = re.sub(r"\n{2,}", "\n", "\n".join(lines)).strip("\n")
    return re.sub(r"^ *template <[^\n]*>(?:\n(?= *(?:template|\}|$))|\Z)", "", text, flags=re.M).rstrip("\n")


def signature(name, thing):
    """How Python calls it: names and plain defaults."""
    if _is_enum(thing) or isinstance(thing, property) or not callable(thing):
        return name
    said = (inspect.getdoc(thing) or "").split("\n")[0]
    if said.startswith(name + "("):  # pybind11 writes it there
        return name + "(" + ", ".join(_parameters(said)) + ")"
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return name
    plain = [
        each.replace(annotation=each.empty, default=each.default if _is_plain(each.default) else Ellipsis)
        for each in found.parameters.values()
        if each.name != "self"
    ]
    return name + str(found.replace(parameters=plain, return_annotation=found.empty)).replace("=Ellipsis", "=...")


def _parameters(said):
    """Of "f(a: list[str], b: int = 3) -> None" a and b=3."""
    depth, each, found = 0, "", []
    for letter in said[said.index("(") + 1 :]:
        depth += (letter in "([<{") - (letter in ")]>}")
        if depth < 0 or depth == 0 and letter == ",":
            found.append(each)
            each = ""
            if depth < 0:
                break
        else:
            each += letter
    split = [re.match(r"\s*([\w*]+)(?:\s*:.*?)?(?:\s*=\s*(.*))?$", one) for one in found if one.strip()]
    return [one.group(1) + (f"={one.group(2)}" if one.group(2) else "") for one in split if one and one.group(1) != "self"]


def _is_enum(thing):
    return isinstance(thing, type) and issubclass(thing, enum.Enum)


def _is_plain(default):
    return default is inspect.Parameter.empty or default is None or isinstance(default, (bool, int, float, str, tuple))


def first_sentence(name, thing):
    if inspect.ismodule(thing) or isinstance(thing, str):
        return ""
    if _is_enum(thing):  # PyTorch's own, where it has all of them
        return "The decisions of C++, by the same names"
    words = (inspect.getdoc(thing) or "").strip()
    if words.startswith(name + "("):
        words = words.partition("\n")[2].strip()
    words = " ".join(words.split("\n\n")[0].split())
    return re.split(r"(?<=\.)\s", words)[0].rstrip(":.")


def members(thing):
    """Of a class: what its users call and read."""
    if not isinstance(thing, type) or _is_enum(thing):
        return []
    classes = [base for base in reversed(thing.__mro__[:-1]) if base.__module__.startswith("ac2")]
    own = {name: property() for base in classes for name in vars(base).get("__annotations__", {})}
    own |= {name: value for base in classes for name, value in vars(base).items()}
    return [(name, getattr(value, "__func__", value)) for name, value in sorted(own.items()) if not name.startswith("_")]


def python_names(ac2):
    """The sections of the page: a title, and the names with what they stand for."""
    modules = [("`ac2`", ac2), ("`ac2.policies`", ac2.policies), ("`ac2.forms`", ac2.forms)]
    return [(title, [(name, getattr(module, name)) for name in sorted(module.__all__)]) for title, module in modules]


def item(name, thing, indent=""):
    said = first_sentence(name, thing)
    text = f"{indent}- `{signature(name, thing)}`" + (f": {said}." if said else "")
    return "\n".join(textwrap.wrap(text, COLUMNS, subsequent_indent=indent + "  ", break_long_words=False, break_on_hyphens=False))


def ready_made(root):
    """The table of the ready-made policies, and the notes under it, from the banner of policies/policies.h."""
    banner = (root / "policies" / "policies.h").read_text().split("#pragma once")[0]
    lines = [line[2:].strip() for line in banner.split("\n") if line.startswith("//")]
    first = next(i for i, line in enumerate(lines) if line.startswith("|"))
    text = "\n".join(lines[first:]).partition("The headers, each")[0].strip()
    return re.sub(r"^\| (\w+\(.*?\))(?= *\|)", r"| `\1`", text, flags=re.M)


def page(root, ac2):
    parts = [INTRODUCTION, "## The ready-made policies\n", ready_made(root) + "\n", "## C++\n"]
    for header in public_headers(root):
        code = declarations((root / header).read_text())
        if code:
            parts.append(f"### `{header}`\n\n```cpp\n{code}\n```\n")
    parts.append("## Python\n")
    for title, names in python_names(ac2):
        items = []
        for name, thing in names:
            items += [item(name, thing), *(item(*each, indent="  ") for each in members(thing))]
        parts.append(f"### {title}\n\n" + "\n".join(items) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    import ac2

    sys.stdout.write(page(ROOT, ac2))
