"""cairn_cc_library, _binary, _test: the native rules with the warnings of the house as errors."""

WARNINGS = [
    "-Wall",
    "-Wextra",
    "-Wpedantic",
    "-Wshadow",
    "-Wconversion",
    "-Wno-sign-conversion",
    "-Wno-missing-field-initializers",
    "-Wnon-virtual-dtor",
    "-Werror",
]

def cairn_cc_library(copts = [], **kwargs):
    native.cc_library(copts = WARNINGS + copts, **kwargs)

def cairn_cc_binary(copts = [], **kwargs):
    native.cc_binary(copts = WARNINGS + copts, **kwargs)

def cairn_cc_test(copts = [], deps = [], size = "small", **kwargs):
    native.cc_test(copts = WARNINGS + copts, deps = deps + ["@system//:gtest_main"], size = size, **kwargs)
