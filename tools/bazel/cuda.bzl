"""Finds cuda.h, with which a test compares our own declarations. Nothing that ships needs it."""

def _cuda_header_impl(rctx):
    home = rctx.os.environ.get("CUDA_HOME", "/usr/local/cuda")
    header = rctx.path(home + "/include/cuda.h")
    rctx.file("none.h", "")
    headers = ["none.h"]
    if header.exists:
        rctx.symlink(header, "include/cuda.h")
        headers = ["include/cuda.h"]
    rctx.file("BUILD", """
cc_library(
    name = "cuda",
    hdrs = %r,
    includes = ["include"],
    visibility = ["//visibility:public"],
)
""" % headers)

cuda_header = repository_rule(
    implementation = _cuda_header_impl,
    environ = ["CUDA_HOME"],
    local = True,
    doc = "The library `cuda` has cuda.h if CUDA_HOME or /usr/local/cuda has it, else nothing.",
)
