"""For MODULE.bazel: the repositories that ac2_repositories() gives a WORKSPACE.

They are rules that look for what is installed, and download nothing but LibTorch. Bazel 4.2 never loads this file.
"""

load(":repositories.bzl", "ac2_own_repositories")

def _impl(_):
    ac2_own_repositories()

ac2_extension = module_extension(implementation = _impl)
