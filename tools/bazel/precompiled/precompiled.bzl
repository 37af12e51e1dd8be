"""Precompiled headers: what most files of Cairn include anyway, parsed once.

A third of a cold build's time is the standard library, absl and gRPC, parsed anew for each of some hundred files. The
rules of cc.bzl put `-include HEADER` before each file, where the compiler finds HEADER.gch. Sources include what they
use all the same: the sanitizers' and clang's builds, which want other flags, do without (--define=precompiled=no).
"""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")
load("//tools/bazel:warnings.bzl", "WARNINGS")

def _precompiled_header_impl(ctx):
    header = ctx.actions.declare_file(ctx.file.header.basename)
    ctx.actions.symlink(output = header, target_file = ctx.file.header)
    precompiled = ctx.actions.declare_file(ctx.file.header.basename + ".gch")
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    compilation = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps]).compilation_context
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + WARNINGS,
        include_directories = compilation.includes,
        quote_include_directories = compilation.quote_includes,
        system_include_directories = compilation.system_includes,
        preprocessor_defines = compilation.defines,
        use_pic = True,
    )
    flags = cc_common.get_memory_inefficient_command_line(
        feature_configuration = features,
        action_name = CPP_COMPILE_ACTION_NAME,
        variables = variables,
    )
    ctx.actions.run(
        executable = cc_common.get_tool_for_action(feature_configuration = features, action_name = CPP_COMPILE_ACTION_NAME),
        arguments = flags + ["-x", "c++-header", ctx.file.header.path, "-o", precompiled.path],
        env = cc_common.get_environment_variables(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
            variables = variables,
        ),
        inputs = depset([ctx.file.header], transitive = [compilation.headers, toolchain.all_files]),
        outputs = [precompiled],
        mnemonic = "CppPrecompile",
        progress_message = "Precompiling %s" % ctx.file.header.short_path,
    )
    own = CcInfo(compilation_context = cc_common.create_compilation_context(headers = depset([header, precompiled])))
    return [
        DefaultInfo(files = depset([header, precompiled])),
        cc_common.merge_cc_infos(direct_cc_infos = [own], cc_infos = [dep[CcInfo] for dep in ctx.attr.deps]),
    ]

precompiled_header = rule(
    implementation = _precompiled_header_impl,
    attrs = {
        "header": attr.label(allow_single_file = [".h"], mandatory = True),
        "deps": attr.label_list(providers = [CcInfo]),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
