"""Stand-ins for the repositories that Debian's Bazel 4.2 would fetch from the network.

Only C++, protobuf and shell rules are used, so a few lines replace them; rules_java comes from Debian's own package
because toolchain resolution looks at it even when nothing is built with Java.
"""

def _files_impl(rctx):
    for path, content in rctx.attr.files.items():
        rctx.file(path, content)

_files = repository_rule(
    implementation = _files_impl,
    attrs = {"files": attr.string_dict(mandatory = True)},
    doc = "A repository that consists of the given files.",
)

_CC_RULES = [
    "cc_binary",
    "cc_import",
    "cc_library",
    "cc_proto_library",
    "cc_test",
    "cc_toolchain",
    "cc_toolchain_suite",
]

def debian_bazel_repositories():
    """Declares rules_cc, remote_coverage_tools and rules_java without a download."""
    _files(
        name = "rules_cc",
        files = {
            "BUILD": "",
            "cc/BUILD": "",
            "cc/defs.bzl": "".join(["{0} = native.{0}\n".format(rule) for rule in _CC_RULES]),
        },
    )
    _files(
        name = "remote_coverage_tools",
        files = {
            "BUILD": "".join([
                "sh_binary(name = {0}, srcs = [\"empty.sh\"], visibility = [\"//visibility:public\"])\n".format(repr(name))
                for name in ["coverage_report_generator", "lcov_merger"]
            ]),
            "empty.sh": "#!/bin/sh\n",
        },
    )
    native.local_repository(name = "rules_java", path = "/usr/share/bazel/rules/java")
