"""System libraries as cc_library targets, found by pkg-config."""

def _system_libraries_impl(rctx):
    build = ["package(default_visibility = [\"//visibility:public\"])\n"]
    for name, spec in rctx.attr.libraries.items():
        modules, packages = spec[0].split(" "), spec[1]
        static = ["--static"] if rctx.os.environ.get("CAIRN_STATIC") else []
        result = rctx.execute(["pkg-config", "--cflags", "--libs"] + static + modules)
        if result.return_code:
            fail("%s: %s\n  apt-get install %s" % (name, result.stderr, packages))
        flags = [flag for flag in result.stdout.strip().split(" ") if flag]
        link = [
            flag
            for flag in flags
            if flag[:2] in ["-l", "-L"] or flag == "-pthread" or flag.startswith("-Wl,")
        ]

        # Keep the last of equal flags: the linker resolves from left to right.
        link = [flag for i, flag in enumerate(link) if flag not in link[i + 1:]] + spec[2:]
        defines = [flag[2:] for flag in flags if flag.startswith("-D")]
        build.append("cc_library(name = %r, linkopts = %r, defines = %r)\n" % (name, link, defines))
    rctx.file("BUILD", "".join(build))

system_libraries = repository_rule(
    implementation = _system_libraries_impl,
    attrs = {"libraries": attr.string_list_dict(
        mandatory = True,
        doc = "name: [pkg-config modules, Debian packages, further link flags...]",
    )},
    environ = ["CAIRN_STATIC", "PKG_CONFIG_LIBDIR", "PKG_CONFIG_PATH"],
    local = True,
    doc = "One cc_library per system library; a missing one fails with the package to install.",
)
