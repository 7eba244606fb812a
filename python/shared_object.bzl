"""shared_object: a shared library of some packages' archives, as CMake makes libac2.so and ac2._C.

Bazel's cc_binary(linkshared) would put all that it depends on into each: the runtime would be in the process twice.
"""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_LINK_DYNAMIC_LIBRARY_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _library_folders(ctx, toolchain):
    """Returns the -L of the toolchain: the linker does not know the folder of another machine's libraries."""
    features = cc_common.configure_features(ctx = ctx, cc_toolchain = toolchain, requested_features = ctx.features)
    flags = cc_common.get_memory_inefficient_command_line(
        feature_configuration = features,
        action_name = CPP_LINK_DYNAMIC_LIBRARY_ACTION_NAME,
        variables = cc_common.create_link_variables(
            cc_toolchain = toolchain,
            feature_configuration = features,
            is_linking_dynamic_library = True,
        ),
    )
    return [flag for flag in flags if flag.startswith("-L")]

def _impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    archives = []
    options = []
    for dep in ctx.attr.deps:
        for linked in dep[CcInfo].linking_context.linker_inputs.to_list():
            package = linked.owner.package
            if linked.owner.workspace_name == "" and [p for p in ctx.attr.packages if package == p or package.startswith(p + "/")]:
                for library in linked.libraries:
                    archive = library.static_library or library.pic_static_library
                    if archive not in archives:
                        archives.append(archive)
            for option in linked.user_link_flags:
                # abseil's archives are not made for shared libraries: Debian has both.
                if option.startswith("-l:libabsl") and option.endswith(".a"):
                    option = "-l" + option[len("-l:lib"):-len(".a")]
                options.append(option)
    arguments = ctx.actions.args()
    arguments.add_all(["-shared", "-o", ctx.outputs.out, "-Wl,-soname," + ctx.outputs.out.basename])
    arguments.add_all(["-Wl,-rpath,$ORIGIN", "-Wl,-rpath,$ORIGIN/lib", "-Wl,--as-needed"])
    arguments.add("-Wl,--whole-archive")
    arguments.add_all(archives)
    arguments.add("-Wl,--no-whole-archive")
    arguments.add_all(ctx.files.links)
    arguments.add_all(_library_folders(ctx, toolchain))
    arguments.add_all(options)
    arguments.add_all(ctx.attr.linkopts)
    arguments.add_all(["-lstdc++", "-lm"])
    ctx.actions.run(
        executable = toolchain.compiler_executable,
        arguments = [arguments],
        inputs = depset(archives + ctx.files.links, transitive = [toolchain.all_files]),
        outputs = [ctx.outputs.out],
        mnemonic = "LinkSharedObject",
        use_default_shell_env = True,
    )

shared_object = rule(
    implementation = _impl,
    attrs = {
        # The archives of the packages below these, as far as deps reach them, are in it whole.
        "packages": attr.string_list(mandatory = True),
        "deps": attr.label_list(providers = [CcInfo]),
        # Shared objects that it is linked to.
        "links": attr.label_list(allow_files = [".so"]),
        "linkopts": attr.string_list(),
        "out": attr.output(mandatory = True),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
