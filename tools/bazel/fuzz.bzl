"""cairn_fuzz_target: a libFuzzer binary, and an ordinary test that replays its seeds."""

load("//tools/bazel:cc.bzl", "cairn_cc_library")

def cairn_fuzz_target(name, srcs, deps, seeds, data = [], damaged_copies = 2000):
    """`srcs` define LLVMFuzzerTestOneInput, and open `data`.

    A target that takes long for an input has fewer `damaged_copies`.
    bazel build --config=fuzz //tests/fuzz:NAME makes the fuzzer. NAME_seeds_test runs in every build, with every
    compiler: each seed, each of its prefixes up to a limit, and each seed damaged in many places.
    """
    cairn_cc_library(name = name + "_entry", testonly = True, srcs = srcs, deps = deps, alwayslink = True)
    native.cc_binary(
        name = name,
        testonly = True,
        linkopts = ["-fsanitize=fuzzer"],
        data = data,
        tags = ["manual"],
        deps = [":" + name + "_entry"],
    )
    native.cc_test(
        name = name + "_seeds_test",
        size = "small",
        args = [str(damaged_copies)] + ["$(rootpath %s)" % seed for seed in seeds],
        data = seeds + data,
        deps = [
            ":" + name + "_entry",
            "//tests/fuzz:replay_main",
        ],
    )
