"""Amazon's C libraries for HTTP, TLS, signing and credentials, built from the source release of the package awscrt."""

_VERSION = "0.38.1"
_SHA256 = "0dcebfaa70cf079133cd2352119e3d05e9b8ca1d1621736cfb54c03f3d5fef0f"
_PARTS = [
    "aws-c-auth",
    "aws-c-cal",
    "aws-c-common",
    "aws-c-compression",
    "aws-c-http",
    "aws-c-io",
    "aws-c-sdkutils",
    "s2n",
]

# Prints what s2n-tls can use of this compiler and this OpenSSL, as its own build finds out: what compiles is there.
_PROBE = """
cd s2n
object=$(mktemp)
trap 'rm -f "$object"' EXIT
global=$(cat tests/features/GLOBAL.flags)
for probe in tests/features/*.c; do
  if "${CC:-cc}" -I. -include utils/s2n_prelude.h -c $global $(cat "${probe%.c}.flags") -o "$object" "$probe" 2>/dev/null; then
    basename "$probe" .c
  fi
done
"""

def _run(rctx, arguments):
    result = rctx.execute(arguments, timeout = 1800)
    if result.return_code:
        fail("%s: %s%s" % (arguments[0], result.stdout, result.stderr))
    return result.stdout

def _aws_c_libraries_impl(rctx):
    archive = "awscrt-%s.tar.gz" % _VERSION

    # Bazel's cache of downloads finds the archive by its digest, so the network is needed once for each user.
    if not rctx.download("file:///cached", output = archive, sha256 = _SHA256, allow_fail = True).success:
        what = "awscrt==%s --hash=sha256:%s" % (_VERSION, _SHA256)
        rctx.file("requirements.txt", what)
        _run(rctx, ["python3", "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=:all:", "--require-hashes", "--requirement=requirements.txt", "--dest=download"])
        rctx.download("file://%s" % rctx.path("download/" + archive), output = archive, sha256 = _SHA256)
    _run(rctx, ["tar", "-xzf", archive, "--strip-components=2"] +
               ["awscrt-%s/crt/%s" % (_VERSION, part) for part in _PARTS])
    rctx.delete(archive)
    rctx.delete("download")
    features = _run(rctx, ["sh", "-c", _PROBE]).split("\n")
    if "S2N_LIBCRYPTO_SANITY_PROBE" not in features:
        fail("s2n-tls cannot use OpenSSL\n  apt-get install libssl-dev")
    rctx.template("BUILD", rctx.attr.build_file, {"%{s2n_features}": repr(["%s=1" % f for f in features if f])})

aws_c_libraries = repository_rule(
    implementation = _aws_c_libraries_impl,
    environ = ["CC"],
    attrs = {"build_file": attr.label(allow_single_file = True, mandatory = True)},
    doc = "The library `aws` has aws-c-http, aws-c-auth and what they need. Their licences are in the same folder.",
)
