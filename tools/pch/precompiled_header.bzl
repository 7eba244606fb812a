"""precompiled_header: LibTorch's headers, parsed once for all files that are compiled with the same flags."""

def _impl(ctx):
    # What GCC takes for `-include HEADER` is HEADER.gch beside it if that suits, and else HEADER, which is empty.
    header = ctx.actions.declare_file(ctx.label.name + ".h")
    ctx.actions.write(header, "")
    context = ctx.attr.compiled[CcInfo].compilation_context
    headers = [header]
    compiler = ctx.attr._cc_toolchain[cc_common.CcToolchainInfo].compiler_executable.split("/")[-1]
    if ctx.attr.use and ("gcc" in compiler or "g++" in compiler):
        for linker_input in ctx.attr.compiled[CcInfo].linking_context.linker_inputs.to_list():
            for library in linker_input.libraries:
                if linker_input.owner == ctx.attr.compiled.label:
                    for compiled in library.objects or library.pic_objects or []:
                        gch = ctx.actions.declare_file(ctx.label.name + ".h.gch")
                        ctx.actions.symlink(output = gch, target_file = compiled)
                        headers.append(gch)
    own = CcInfo(compilation_context = cc_common.create_compilation_context(headers = depset(headers)))
    # Not what it links: the headers of LibTorch, and macros such as GoogleTest's, without which GCC would not use the file.
    used = CcInfo(compilation_context = context)
    return [DefaultInfo(files = depset(headers)), cc_common.merge_cc_infos(cc_infos = [own, used])]

_precompiled_header = rule(
    implementation = _impl,
    attrs = {
        "compiled": attr.label(providers = [CcInfo]),
        "use": attr.bool(),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
)

def precompiled_header(name, src, deps, copts = []):
    """Defines :name, which tools/cc.bzl makes every file include.

    Args:
      name: its own name; files include tools/pch/NAME.h.
      src: a .cc file that includes what is to be compiled once.
      deps: where those headers are.
      copts: as those of the files that use it. GCC does not use a precompiled header that was made with other options.
    """
    # Compiled as any file is, and thus with the same flags. What Bazel takes for an object file is the precompiled header.
    native.cc_library(
        name = name + "_compiled",
        srcs = [src],
        copts = copts + ["-x", "c++-header"],
        linkstatic = True,
        # No archive is wanted of it.
        tags = ["manual"],
        deps = deps,
    )
    _precompiled_header(
        name = name,
        compiled = ":%s_compiled" % name,
        tags = ["manual"],
        use = select({
            "//tools/pch:off": False,
            "//conditions:default": True,
        }),
        visibility = ["//visibility:public"],
    )
