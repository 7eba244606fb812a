"""cc_library of a room: a target for each header, and one compilation for all of them.

    load("//tools:room.bzl", "cc_library", "room")

    cc_library(name = "part", srcs = ["part.cc"], hdrs = ["part.h"], deps = [...])
    ...
    room()  # at the end

Most of a compilation is LibTorch's headers, and templates of theirs that the compiler makes anew for each file. So the .cc files
of a room are compiled as one: room() writes room.cc, which includes them. No two of them may give different things the same name.
With `--config=files` each is compiled by itself, which is for people who change it. The compiler then sees the headers of the
file's own `deps` and no others.

A library of a room depends on :room for what it links. Its headers, `deps` and `visibility` are its own: Bazel checks them as in any
library. :room cannot depend on the library in turn, so each library NAME has NAME_headers besides, which is its headers without :room.

`alone = True` keeps a library out of :room. It is for one that has compiler options of its own, for one whose users are to have no
LibTorch, for one that is used by other rooms which this room uses, and for one of which GCC makes fewer instructions alone.
"""

load("//tools:cc.bzl", "with_pch", cc_library_alone = "cc_library")

_TAG = "part_of_room"

def _headers_of(label):
    package = "//" + native.package_name()
    for prefix in [":", package + ":"]:
        if label.startswith(prefix):
            return ":%s_headers" % label[len(prefix):]
    return label

def cc_library(name, alone = False, pch = None, srcs = [], hdrs = [], deps = [], **kwargs):
    if alone:
        cc_library_alone(name = name, pch = pch, srcs = srcs, hdrs = hdrs, deps = deps, **kwargs)
        native.alias(name = name + "_headers", actual = ":" + name, tags = ["manual"], visibility = ["//visibility:private"])
        return
    native.cc_library(
        name = name + "_headers",
        hdrs = hdrs,
        linkopts = kwargs.get("linkopts", []),
        tags = ["manual", _TAG],
        textual_hdrs = srcs,
        visibility = ["//visibility:private"],
        deps = [_headers_of(label) for label in deps],
    )
    compiled = with_pch(pch, {"copts": kwargs.pop("copts", []), "deps": [], "srcs": srcs})
    native.cc_library(
        name = name,
        srcs = select({"//tools:files": srcs, "//conditions:default": []}),
        hdrs = hdrs,
        copts = compiled["copts"],
        deps = deps + select({
            "//tools:files": compiled["deps"],
            "//conditions:default": [":room"] if srcs else [],
        }),
        **kwargs
    )

def _source_impl(ctx):
    source = ctx.actions.declare_file("room.cc")
    parts = [file.owner for file in ctx.files.parts]
    ctx.actions.write(source, "".join(["#include \"%s/%s\"\n" % (part.package, part.name) for part in parts]))
    return [DefaultInfo(files = depset([source]))]

_source = rule(
    implementation = _source_impl,
    attrs = {"parts": attr.label_list(allow_files = [".cc"])},
)

def _linked_impl(ctx):
    return [CcInfo(linking_context = ctx.attr.library[CcInfo].linking_context)]

# What a library links, without its headers and those that it uses.
_linked = rule(
    implementation = _linked_impl,
    attrs = {"library": attr.label(providers = [CcInfo])},
)

def room(pch = None, copts = []):
    """Defines :room, all libraries above that are not alone, compiled as one file.

    Args:
      pch: the header, as in cc.bzl.
      copts: options of the compiler, which each of the libraries has too.
    """
    parts = [rule for rule in native.existing_rules().values() if _TAG in rule["tags"] and rule["textual_hdrs"]]
    _source(
        name = "room_source",
        parts = [source for part in parts for source in part["textual_hdrs"]],
        tags = ["manual"],
        visibility = ["//visibility:private"],
    )
    cc_library_alone(
        name = "room_compiled",
        srcs = select({"//tools:files": [], "//conditions:default": [":room_source"]}),
        # A class with members of a type of its file alone. To GCC that file is an included one here.
        copts = ["-Wno-subobject-linkage", "-Wno-unknown-warning-option"] + copts,
        pch = pch,
        visibility = ["//visibility:private"],
        deps = [":" + part["name"] for part in parts],
    )
    _linked(
        name = "room",
        library = ":room_compiled",
        tags = ["manual"],
        visibility = ["//visibility:private"],
    )
