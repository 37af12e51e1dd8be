# What CMakeLists.txt of each part says for Linux with OpenSSL, without assembly: checksums of Cairn are ISA-L's.
licenses(["notice"])  # Apache-2.0

exports_files(
    glob(["*/LICENSE", "*/NOTICE", "*/THIRD-PARTY-LICENSES.txt"]),
    visibility = ["//visibility:public"],
)

cc_library(
    name = "s2n",
    srcs = glob(["s2n/%s/**/*.%s" % (folder, kind) for folder in ["crypto", "error", "stuffer", "tls", "utils"] for kind in ["c", "h"]]),
    hdrs = glob(["s2n/api/**/*.h"]),
    copts = ["-w", "-std=gnu99", "-fvisibility=hidden", "-Iexternal/aws_c/s2n", "-include", "external/aws_c/s2n/utils/s2n_prelude.h"],
    includes = ["s2n/api"],
    linkopts = ["-ldl", "-lm", "-lrt"],
    local_defines = ["S2N_BUILD_RELEASE=1", "S2N_EXPORTS=1", "S2N_STACKTRACE=1"] + %{s2n_features},
    deps = ["@system//:crypto"],
)

genrule(
    name = "config",
    outs = ["config/aws/common/config.h"],
    cmd = "for name in GCC_OVERFLOW_MATH_EXTENSIONS GCC_INLINE_ASM POSIX_LARGE_FILE_SUPPORT EXECINFO LINUX_IF_LINK_H; do echo \"#define AWS_HAVE_$$name\"; done > $@",
)

_PARTS = ["auth", "cal", "common", "compression", "http", "io", "sdkutils"]

cc_library(
    name = "aws",
    srcs = glob(
        ["aws-c-%s/source/*.c" % part for part in _PARTS] +
        ["aws-c-%s/source/**/*.h" % part for part in _PARTS] + [
            "aws-c-cal/source/shared/ed25519.c",
            "aws-c-cal/source/shared/lccrypto_common.c",
            "aws-c-cal/source/shared/ref_hkdf.c",
            "aws-c-cal/source/unix/*.c",
            "aws-c-common/source/arch/generic/*.c",
            "aws-c-common/source/external/**/*.c",
            "aws-c-common/source/linux/*.c",
            "aws-c-common/source/posix/*.c",
            "aws-c-io/source/linux/*.c",
            "aws-c-io/source/posix/*.c",
            "aws-c-io/source/s2n/*.c",
            "aws-c-io/source/socks5/*.c",
        ],
    ),
    hdrs = glob(["aws-c-%s/include/**/*.%s" % (part, kind) for part in _PARTS for kind in ["def", "h", "inl"]]) + [":config"],
    copts = ["-w", "-std=gnu99", "-Iexternal/aws_c/s2n", "-Iexternal/aws_c/aws-c-common/source/external/libcbor"],
    defines = ["AWS_ENABLE_EPOLL"],
    includes = ["aws-c-%s/include" % part for part in _PARTS] + ["config"],
    linkopts = ["-ldl", "-lm", "-lrt", "-pthread"],
    local_defines = [
        "AWS_AFFINITY_METHOD=AWS_AFFINITY_METHOD_PTHREAD_ATTR",
        "AWS_PTHREAD_GETNAME_TAKES_3ARGS",
        "AWS_PTHREAD_SETNAME_TAKES_2ARGS",
        "AWS_S2N_INSOURCE_PATH",
        "CJSON_HIDE_SYMBOLS",
        "INTEL_NO_ITTNOTIFY_API",
        "USE_S2N",
    ],
    textual_hdrs = glob(["aws-c-common/include/aws/common/private/*.c"]),
    visibility = ["//visibility:public"],
    deps = [
        ":s2n",
        "@system//:crypto",
    ],
)
