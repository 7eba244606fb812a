"""cc_library, cc_binary and cc_test of files that include LibTorch: Bazel's own, with a precompiled header.

    load("//tools:cc.bzl", "cc_library", "cc_test")

Each file is compiled by itself. room.bzl has a cc_library for folders whose files are compiled as one.

`pch` is the header, one of tools/pch or "none", for files that include nothing of LibTorch. Without it "library" in ac2
and policies, "tensors" in tests, "torch" elsewhere. It changes no result, only how long compiling takes: "tests_torch"
suits tests that include <torch/torch.h> or "ac2/ac2.h", themselves or by a header.
"""

_OF_FOLDER = {
    "ac2": "library",
    "policies": "library",
    "tests": "tensors",
}

# GCC 12 knows the code of a precompiled header by other places than that of an included one, and warns of overflows in
# std::string that are none (https://gcc.gnu.org/bugzilla, 105329 and its like). Without the header these warnings are on.
_FALSE_WARNINGS = select({
    "//tools/pch:off": [],
    "//conditions:default": [
        "-Wno-array-bounds",
        "-Wno-restrict",
        "-Wno-stringop-overflow",
        "-Wno-stringop-overread",
        "-Wno-unknown-warning-option",
    ],
})

def with_pch(pch, kwargs):
    """The arguments of a rule, with the precompiled header if it has sources."""
    pch = pch or _OF_FOLDER.get(native.package_name().split("/")[0], "torch")
    if pch == "none" or not kwargs.get("srcs"):
        return kwargs
    kwargs = dict(kwargs)
    kwargs["copts"] = ["-include", "tools/pch/%s.h" % pch] + _FALSE_WARNINGS + kwargs.get("copts", [])
    kwargs["deps"] = kwargs.get("deps", []) + ["//tools/pch:" + pch]
    return kwargs

def cc_library(pch = None, **kwargs):
    native.cc_library(**with_pch(pch, kwargs))

def cc_binary(pch = None, **kwargs):
    native.cc_binary(**with_pch(pch, kwargs))

def cc_test(pch = None, **kwargs):
    native.cc_test(**with_pch(pch, kwargs))
