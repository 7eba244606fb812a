"""Repository rule: @ac2_aarch64, with which `--config=aarch64` (.bazelrc) builds for aarch64 on another machine.

:toolchain is the distribution's cross compiler (Debian: g++-aarch64-linux-gnu), :run starts a program by qemu-aarch64
(qemu-user). Libraries are those of sysroot.sh. Nothing is looked for, or fetched, without that configuration.
"""

_PREFIX = "aarch64-linux-gnu-"

def _impl(rctx):
    if rctx.execute(["uname", "-m"]).stdout.strip() == "aarch64":
        fail("--config=aarch64 is for other machines: here ./bazelw builds for aarch64 without it")
    compiler = rctx.which(_PREFIX + "g++")
    missing = ([] if compiler else ["g++-aarch64-linux-gnu"]) + ([] if rctx.which("qemu-aarch64") else ["qemu-user"])
    if missing:
        fail("--config=aarch64 needs a cross compiler and an emulator. On Debian or Ubuntu:\n  sudo apt-get install -y " + " ".join(missing))
    result = rctx.execute(["bash", str(rctx.path(rctx.attr._sysroot))], timeout = 1800, quiet = False)
    if result.return_code != 0:
        fail("no libraries to build with for aarch64:\n" + result.stderr)
    sysroot = result.stdout.strip().split("\n")[-1]

    # Where the compiler finds headers by itself; Bazel must know them.
    said = rctx.execute(["bash", "-c", "%s -E -v -x c++ /dev/null 2>&1 >/dev/null" % compiler]).stdout
    builtin = [
        str(rctx.path(line.strip()).realpath)
        for line in said.split("#include <...> search starts here:\n")[1].split("End of search list.")[0].strip().split("\n")
    ]
    tools = {}
    for tool in ["ar", "cpp", "dwp", "gcc", "gcov", "ld", "llvm-cov", "nm", "objcopy", "objdump", "strip"]:
        tools[tool] = str(rctx.which(_PREFIX + tool) or "/bin/false")
    rctx.template(
        "BUILD",
        rctx.attr._template,
        {
            "%{builtin}": repr(builtin + [sysroot + "/usr/include"]),
            "%{sysroot}": sysroot,
            "%{tools}": repr(tools),
        },
        executable = False,
    )
    rctx.symlink(rctx.attr._run, "run.sh")

aarch64_configure = repository_rule(
    implementation = _impl,
    attrs = {
        "_run": attr.label(default = "//third_party/aarch64:run.sh"),
        "_sysroot": attr.label(default = "//third_party/aarch64:sysroot.sh"),
        "_template": attr.label(default = "//third_party/aarch64:BUILD.tpl"),
    },
    environ = [
        "AC2_CACHE",
        "HOME",
        "PATH",
        "XDG_CACHE_HOME",
    ],
    configure = True,
    local = True,
)
