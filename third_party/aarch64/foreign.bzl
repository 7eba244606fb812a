"""What repository rules ask about the machine that is built for: $AC2_MACHINE, which is this one if it is not set."""

def foreign_root(rctx, sysroot):
    """Returns the directory of that machine's libraries, "" where it is this machine.

    Args:
      rctx: a repository rule's, whose environ has FOREIGN_ENVIRON.
      sysroot: the label of sysroot.sh.
    """
    machine = rctx.os.environ.get("AC2_MACHINE", "")
    if not machine or machine == rctx.execute(["uname", "-m"]).stdout.strip():
        return ""
    if machine != "aarch64":
        fail("AC2_MACHINE=%s: this machine builds for itself and for aarch64" % machine)
    result = rctx.execute(["bash", str(rctx.path(sysroot))], timeout = 1800, quiet = False)
    if result.return_code != 0:
        fail("no libraries to build with for aarch64:\n" + result.stderr)
    return result.stdout.strip().split("\n")[-1]

FOREIGN_ENVIRON = [
    "AC2_CACHE",
    "AC2_MACHINE",
    "HOME",
    "XDG_CACHE_HOME",
]
