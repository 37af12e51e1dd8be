"""The system's protoc, its plugins and the well-known types, under the name that Bazel's native rules expect."""

_WELL_KNOWN = ["any", "duration", "empty", "struct", "timestamp", "wrappers"]

def _system_protobuf_impl(rctx):
    for tool in ["protoc", "grpc_cpp_plugin", "grpc_python_plugin"]:
        path = rctx.which(tool)
        if not path:
            fail("%s is missing\n  apt-get install protobuf-compiler protobuf-compiler-grpc" % tool)
        rctx.symlink(path, "bin/" + tool)
    rctx.symlink("/usr/include/google", "google")
    build = [
        "package(default_visibility = [\"//visibility:public\"])\n",
        "cc_library(name = \"protobuf\", linkopts = [\"-lprotobuf\", \"-pthread\"])\n",
    ]
    for tool in ["protoc", "grpc_cpp_plugin", "grpc_python_plugin"]:
        build.append("sh_binary(name = %r, srcs = [%r])\n" % (tool, "bin/" + tool))
    for name in _WELL_KNOWN:
        build.append("proto_library(name = %r, srcs = [%r])\n" % (name + "_proto", "google/protobuf/%s.proto" % name))
    build.append(
        "proto_lang_toolchain(name = \"cc_toolchain\", command_line = \"--cpp_out=$(OUT)\", runtime = \":protobuf\", blacklisted_protos = %r)\n" %
        [":%s_proto" % name for name in _WELL_KNOWN],
    )
    rctx.file("BUILD", "".join(build))

system_protobuf = repository_rule(implementation = _system_protobuf_impl, local = True)
