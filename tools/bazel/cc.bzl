"""Defines cairn_cc_library, _binary and _test: the native rules with our warnings as errors."""

load(":warnings.bzl", "WARNINGS")

# Every compilation begins with this header; see precompiled/precompiled.bzl. With a precompiled header GCC 12 inlines
# differently, and suspects moved std::strings of leaving their buffers; builds without one keep these warnings.
def _precompiled(name):
    package = "//tools/bazel/precompiled"
    flags = ["-include", "$(GENDIR)/tools/bazel/precompiled/%s.h" % name, "-Winvalid-pch"]
    flags += ["-Wno-array-bounds", "-Wno-restrict", "-Wno-stringop-overflow", "-Wno-stringop-overread"]
    return struct(
        copts = select({package + ":off": [], "//conditions:default": flags}),
        deps = select({package + ":off": [], "//conditions:default": [package + ":" + name]}),
    )

_BASE = _precompiled("base")

def cairn_cc_library(copts = [], deps = [], **kwargs):
    native.cc_library(copts = WARNINGS + copts + _BASE.copts, deps = deps + _BASE.deps, **kwargs)

def cairn_cc_binary(copts = [], deps = [], linkopts = [], **kwargs):
    native.cc_binary(
        copts = WARNINGS + copts + _BASE.copts,
        deps = deps + _BASE.deps,
        # pkg-config names all of absl. Unused libraries would be loaded at each start and packed into the wheel.
        linkopts = ["-Wl,--as-needed"] + linkopts,
        stamp = 1,
        **kwargs
    )

def cairn_cc_test(copts = [], deps = [], size = "small", **kwargs):
    native.cc_test(
        copts = WARNINGS + copts + _BASE.copts,
        deps = deps + ["@system//:gtest_main"] + _BASE.deps,
        size = size,
        **kwargs
    )
