load("@bazel_tools//tools/cpp:unix_cc_toolchain_config.bzl", "cc_toolchain_config")

package(default_visibility = ["//visibility:public"])

filegroup(name = "empty")

sh_binary(
    name = "run",
    srcs = ["run.sh"],
)

cc_toolchain_suite(
    name = "toolchain",
    toolchains = {
        "aarch64": ":compiler",
        "aarch64|compiler": ":compiler",
    },
)

cc_toolchain(
    name = "compiler",
    all_files = ":empty",
    ar_files = ":empty",
    as_files = ":empty",
    compiler_files = ":empty",
    dwp_files = ":empty",
    linker_files = ":empty",
    objcopy_files = ":empty",
    strip_files = ":empty",
    supports_param_files = 1,
    toolchain_config = ":config",
    toolchain_identifier = "ac2-aarch64",
)

# As Bazel configures the compiler of a machine itself, so that a build here and one there are compiled alike.
cc_toolchain_config(
    name = "config",
    abi_libc_version = "local",
    abi_version = "local",
    compile_flags = [
        "-isystem",
        "%{sysroot}/usr/include",
        "-U_FORTIFY_SOURCE",
        "-fstack-protector",
        "-Wall",
        "-Wunused-but-set-parameter",
        "-Wno-free-nonheap-object",
        "-fno-omit-frame-pointer",
    ],
    compiler = "compiler",
    cpu = "aarch64",
    cxx_builtin_include_directories = %{builtin},
    dbg_compile_flags = ["-g"],
    host_system_name = "local",
    link_flags = [
        "-L%{sysroot}/usr/lib/aarch64-linux-gnu",
        "-fuse-ld=gold",
        "-Wl,-no-as-needed",
        "-Wl,-z,relro,-z,now",
        "-pass-exit-codes",
    ],
    link_libs = [
        "-lstdc++",
        "-lm",
    ],
    opt_compile_flags = [
        "-g0",
        "-O2",
        "-D_FORTIFY_SOURCE=1",
        "-DNDEBUG",
        "-ffunction-sections",
        "-fdata-sections",
    ],
    opt_link_flags = ["-Wl,--gc-sections"],
    supports_start_end_lib = True,
    target_libc = "local",
    target_system_name = "aarch64-linux-gnu",
    tool_paths = %{tools},
    toolchain_identifier = "ac2-aarch64",
    unfiltered_compile_flags = [
        "-fno-canonical-system-headers",
        "-Wno-builtin-macro-redefined",
        "-D__DATE__=\"redacted\"",
        "-D__TIMESTAMP__=\"redacted\"",
        "-D__TIME__=\"redacted\"",
    ],
)
