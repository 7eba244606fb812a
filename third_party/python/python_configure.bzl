"""Repository rule: the Python that can import @libtorch's torch, for the Python package and its tests.

defs.bzl has HAS_PYTHON, which is False where there is none (another Python's torch, a LibTorch archive without Python),
and SUFFIX, how extension modules' names end. :headers are Python's, :python starts it, as tools/python_env.sh says.
Only //python loads this: what builds C++ alone fetches nothing. With AC2_MACHINE=aarch64 on another machine the headers are
those of the Python of third_party/aarch64, and nothing starts it.
"""

load("//third_party/aarch64:foreign.bzl", "FOREIGN_ENVIRON", "foreign_root")

_BUILD = """package(default_visibility = ["//visibility:public"])

cc_library(
    name = "headers",
    hdrs = ["include"],
    includes = ["include"],
)

exports_files(["python"])
"""

def _foreign(rctx, home, root):
    version = rctx.execute(["bash", "-c", "ls %s/usr/include | sed -n 's/^python\\(3.*\\)/\\1/p'" % root]).stdout.strip()
    suffix = ".cpython-%s-aarch64-linux-gnu.so" % version.replace(".", "")
    if not version or not rctx.path(home + "/_C" + suffix).exists:
        # buildifier: disable=print
        print("The Python package is left out: %s is no torch for Python %s of Debian for arm64" % (home, version))
        rctx.file("BUILD", "")
        rctx.file("defs.bzl", 'HAS_PYTHON = False\nSUFFIX = ""\n')
        return
    rctx.symlink(root + "/usr/include/python" + version, "include")
    rctx.file("python", "#!/bin/sh\necho 'These tests are not run for another machine; see tools/aarch64_check.sh' >&2\nexit 1\n")
    rctx.file("BUILD", _BUILD)
    rctx.file("defs.bzl", 'HAS_PYTHON = True\nSUFFIX = "%s"\n' % suffix)

def _impl(rctx):
    libtorch = rctx.path(rctx.attr._libtorch).dirname
    home = rctx.read(libtorch.get_child("defs.bzl")).split('LIBTORCH_HOME = "')[1].split('"')[0]
    root = foreign_root(rctx, rctx.attr._sysroot)
    if root:
        _foreign(rctx, home, root)
        return
    found = rctx.execute(["bash", str(rctx.path(rctx.attr._python_env)), home], timeout = 1800, quiet = False)
    if found.return_code not in [0, 2]:
        fail("the Python for //python/... cannot be set up:\n" + found.stderr)
    if found.return_code == 2:
        # buildifier: disable=print
        print("The Python package is left out: " + found.stderr)
        rctx.file("BUILD", "")
        rctx.file("defs.bzl", 'HAS_PYTHON = False\nSUFFIX = ""\n')
        return
    command = found.stdout.strip()
    paths = rctx.execute(["bash", "-c", command + """ -c '
import sysconfig
print(sysconfig.get_paths()["include"], sysconfig.get_config_var("EXT_SUFFIX"))'"""])
    if paths.return_code != 0:
        fail("Python does not say where its headers are: " + paths.stderr)
    include, suffix = paths.stdout.strip().split(" ")
    if not rctx.path(include + "/Python.h").exists:
        fail("%s has no Python.h; install python3-dev" % include)
    rctx.symlink(include, "include")
    rctx.file("python", "#!/usr/bin/env bash\nexec " + command + ' "$@"\n')
    rctx.file("BUILD", _BUILD)
    rctx.file("defs.bzl", 'HAS_PYTHON = True\nSUFFIX = "%s"\n' % suffix)

python_configure = repository_rule(
    implementation = _impl,
    attrs = {
        "_libtorch": attr.label(default = "@libtorch//:defs.bzl"),
        "_sysroot": attr.label(default = "//third_party/aarch64:sysroot.sh"),
        "_python_env": attr.label(default = "//tools:python_env.sh"),
    },
    environ = [
        "PYTHON",
        "VIRTUAL_ENV",
    ] + FOREIGN_ENVIRON,
    configure = True,
    local = True,
)
