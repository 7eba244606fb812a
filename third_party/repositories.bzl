"""All that ac2 needs from outside, for its own WORKSPACE and for those of projects that depend on it."""

load("//third_party/aarch64:aarch64_configure.bzl", "aarch64_configure")
load("//third_party/bazel_shims:repositories.bzl", "offline_bazel_repositories")
load("//third_party/cuda:cuda_configure.bzl", "cuda_configure")
load("//third_party/libtorch:libtorch_configure.bzl", "libtorch_configure")
load("//third_party/python:python_configure.bzl", "python_configure")
load("//third_party/sysdeps:pkg_config.bzl", "pkg_config_repository")

def ac2_repositories():
    """Declares @libtorch, @absl, @gtest, @benchmark, @nlohmann_json, @zlib, @local_cuda, @local_python and @ac2_aarch64.

    Call it first in a WORKSPACE, so that Bazel's own suffix finds its repositories declared and downloads nothing.
    """
    offline_bazel_repositories()
    ac2_own_repositories()

def ac2_own_repositories():
    """The same without what Bazel asks for itself: for extensions.bzl."""
    libtorch_configure(name = "libtorch")
    cuda_configure(name = "local_cuda")
    python_configure(name = "local_python")
    aarch64_configure(name = "ac2_aarch64")

    # Bazel target = pkg-config modules. Add the ones you need; bazelw installs the packages.
    pkg_config_repository(
        name = "absl",
        debian_package = "libabsl-dev",
        modules = {
            "btree": "absl_btree",
            "core_headers": "absl_core_headers",
            "flags": "absl_flags absl_flags_parse absl_flags_usage",
            "flat_hash_map": "absl_flat_hash_map",
            "flat_hash_set": "absl_flat_hash_set",
            "hash": "absl_hash",
            "inlined_vector": "absl_inlined_vector",
            "span": "absl_span",
            "status": "absl_status",
            "statusor": "absl_statusor",
            "str_format": "absl_str_format",
            "strings": "absl_strings absl_str_format",
            "synchronization": "absl_synchronization",
        },
    )
    pkg_config_repository(
        name = "gtest",
        debian_package = "libgtest-dev libgmock-dev",
        modules = {
            "gmock": "gmock",
            "gtest": "gtest",
            "gtest_main": "gtest_main",
        },
    )
    pkg_config_repository(
        name = "benchmark",
        debian_package = "libbenchmark-dev",
        modules = {"benchmark": "benchmark"},
    )
    pkg_config_repository(
        name = "nlohmann_json",
        debian_package = "nlohmann-json3-dev",
        modules = {"nlohmann_json": "nlohmann_json"},
    )
    pkg_config_repository(
        name = "zlib",
        debian_package = "zlib1g-dev",
        modules = {"zlib": "zlib"},
    )
