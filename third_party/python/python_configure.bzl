"""Repository rule: the Python that can import @libtorch's torch, for the Python package and its tests.

defs.bzl has HAS_PYTHON, which is False where there is none (another Python's torch, a LibTorch archive without Python),
and SUFFIX, how extension modules' names end. :headers are Python's, :python starts it, as tools/python_env.sh says.
Only //python loads this: what builds C++ alone fetches nothing.
"""

def _impl(rctx):
    libtorch = rctx.path(rctx.attr._libtorch).dirname
    home = rctx.read(libtorch.get_child("defs.bzl")).split('LIBTORCH_HOME = "')[1].split('"')[0]
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
    rctx.file("BUILD", """package(default_visibility = ["//visibility:public"])

cc_library(
    name = "headers",
    hdrs = ["include"],
    includes = ["include"],
)

exports_files(["python"])
""")
    rctx.file("defs.bzl", 'HAS_PYTHON = True\nSUFFIX = "%s"\n' % suffix)

python_configure = repository_rule(
    implementation = _impl,
    attrs = {
        "_libtorch": attr.label(default = "@libtorch//:defs.bzl"),
        "_python_env": attr.label(default = "//tools:python_env.sh"),
    },
    environ = [
        "PYTHON",
        "VIRTUAL_ENV",
        "AC2_CACHE",
        "XDG_CACHE_HOME",
        "HOME",
    ],
    configure = True,
    local = True,
)
