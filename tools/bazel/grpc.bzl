"""cc_grpc_library: the gRPC C++ code of one proto_library."""

def _grpc_sources_impl(ctx):
    info = ctx.attr.proto[ProtoInfo]
    root = info.proto_source_root
    prefix = ctx.label.name + ".gen"  # outputs of several rules never collide
    names = [f.path[len(root) + 1:] for f in info.direct_sources]
    outs = [
        ctx.actions.declare_file(prefix + "/" + name[:-len(".proto")] + ending)
        for name in names
        for ending in [".grpc.pb.h", ".grpc.pb.cc"]
    ]
    out_dir = outs[0].path[:outs[0].path.index(prefix) + len(prefix)]
    args = ctx.actions.args()
    args.add_joined(
        info.transitive_descriptor_sets,
        join_with = ":",
        format_joined = "--descriptor_set_in=%s",
    )
    args.add(ctx.executable._plugin, format = "--plugin=protoc-gen-grpc=%s")
    args.add("--grpc_out=" + out_dir)
    args.add_all(names)
    ctx.actions.run(
        executable = ctx.executable._protoc,
        arguments = [args],
        inputs = info.transitive_descriptor_sets,
        tools = [ctx.executable._plugin],
        outputs = outs,
        mnemonic = "GrpcCpp",
    )
    return [
        DefaultInfo(files = depset(outs)),
        OutputGroupInfo(srcs = depset([out for out in outs if out.path.endswith(".cc")])),
        CcInfo(compilation_context = cc_common.create_compilation_context(
            headers = depset([out for out in outs if out.path.endswith(".h")]),
            includes = depset([out_dir]),
        )),
    ]

_grpc_sources = rule(
    implementation = _grpc_sources_impl,
    attrs = {
        "proto": attr.label(providers = [ProtoInfo], mandatory = True),
        "_plugin": attr.label(
            default = "@com_google_protobuf//:grpc_cpp_plugin",
            executable = True,
            cfg = "host",
        ),
        "_protoc": attr.label(
            default = "@com_google_protobuf//:protoc",
            executable = True,
            cfg = "host",
        ),
    },
)

def cc_grpc_library(name, proto, deps, **kwargs):
    """gRPC services of `proto` (one proto_library); `deps` names its cc_proto_library."""
    _grpc_sources(name = name + "_sources", proto = proto)
    native.filegroup(name = name + "_srcs", srcs = [name + "_sources"], output_group = "srcs")
    native.cc_library(
        name = name,
        srcs = [name + "_srcs"],
        deps = deps + [name + "_sources", "@system//:grpc"],
        tags = ["grpc"],
        copts = ["-w"],
        **kwargs
    )
