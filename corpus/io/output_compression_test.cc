#include "corpus/io/output_compression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "common/status/reason.h"

namespace cairn::corpus {
namespace {

using testing::HasSubstr;

TEST(OutputCompressionTest, CompressionForOutput_NothingAsked_TheEndingDecides) {
  for (const std::string directory : {"", "d.zst/", "s3://bucket/a.gz/"}) {
    EXPECT_EQ(CompressionForOutput(directory + "a.jsonl.gz", {}).value(), Compression::kGzip);
    EXPECT_EQ(CompressionForOutput(directory + "a.jsonl.zst", {}).value(), Compression::kZstd);
    EXPECT_EQ(CompressionForOutput(directory + "a.ZSTD", {}).value(), Compression::kZstd);
    EXPECT_EQ(CompressionForOutput(directory + "a.jsonl", {}).value(), Compression::kNone);
    EXPECT_EQ(CompressionForOutput(directory + "a", {}).value(), Compression::kNone);
  }
}

TEST(OutputCompressionTest, CompressionForOutput_NameWithoutEnding_TheFlagDecides) {
  for (const std::string path : {"-", "/dev/stdout", "/dev/fd/3", "a", "d.jsonl/a", ".hidden", "d/.hidden"}) {
    EXPECT_EQ(CompressionForOutput(path, Compression::kZstd).value(), Compression::kZstd) << path;
  }
  EXPECT_EQ(CompressionForOutput("a.zstd", Compression::kZstd).value(), Compression::kZstd);
  EXPECT_EQ(CompressionForOutput("a.gz", Compression::kGzip).value(), Compression::kGzip);
}

TEST(OutputCompressionTest, CompressionForOutput_FlagDisagrees_TheNameThatFitsIsTold) {
  const auto other = CompressionForOutput("d/a.jsonl.gz", Compression::kZstd).status();
  EXPECT_TRUE(HasReason(other, Reason::kBadRequest));
  EXPECT_THAT(std::string(other.message()), HasSubstr("--compress zst and --output d/a.jsonl.gz disagree"));
  EXPECT_THAT(MetadataOf(other)["next"], HasSubstr("Name the output d/a.jsonl.zst,"));
  const auto plain = CompressionForOutput("a.jsonl", Compression::kGzip).status();
  EXPECT_THAT(MetadataOf(plain)["next"], HasSubstr("Name the output a.jsonl.gz,"));
}

TEST(OutputCompressionTest, CompressionForOutput_FormatThatIsNotWritten_IsRefused) {
  for (const std::string ending : {".xz", ".parquet", ".arrow", ".feather", ".tar", ".bz2", ".zip", ".tgz", ".LZ4"}) {
    for (const std::optional<Compression> asked : {std::optional<Compression>(), {Compression::kGzip}}) {
      const auto status = CompressionForOutput("a.jsonl" + ending, asked).status();
      EXPECT_TRUE(HasReason(status, Reason::kBadRequest)) << ending;
      EXPECT_THAT(std::string(status.message()), HasSubstr(ending == ".tar" ? "a tar" : ending));
    }
  }
  EXPECT_TRUE(HasReason(CompressionForOutput("a.tar.gz", {}).status(), Reason::kBadRequest));
}

}  // namespace
}  // namespace cairn::corpus
