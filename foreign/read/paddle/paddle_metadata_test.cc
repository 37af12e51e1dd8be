#include "foreign/read/paddle/paddle_metadata.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "common/status/reason.h"
#include "foreign/read/testing/pickle_writer.h"

namespace cairn {
namespace {

using pickle_writer::Attributes;
using pickle_writer::Bool;
using pickle_writer::Dict;
using pickle_writer::Global;
using pickle_writer::Ints;
using pickle_writer::List;
using pickle_writer::None;
using pickle_writer::Object;
using pickle_writer::Pickle;
using pickle_writer::Text;

constexpr char kModule[] = "paddle.distributed.flex_checkpoint.dcp.metadata";
using Dims = std::vector<int64_t>;

// One part of a tensor, and the file that it is in.
struct Part {
  std::string tensor;
  Dims offset, shape, whole;
  std::string file;
  Dims flat = {};  // begin and end
  std::string dtype = "float32";
};

std::string Described(const Part& part, bool old) {
  std::vector<std::pair<std::string, std::string>> attributes = {
      {"global_offset", Ints(part.offset)}, {"local_shape", Ints(part.shape)}, {"dtype", Text(part.dtype)}};
  if (!old) {
    attributes.emplace_back("global_shape", Ints(part.whole));
    attributes.emplace_back("is_flattened", Bool(!part.flat.empty()));
    attributes.emplace_back("flattened_range", part.flat.empty() ? None() : Ints(part.flat));
  }
  return Object(Global(kModule, "LocalTensorMetadata"), Attributes(attributes));
}

std::string Index(const Part& part, bool old) {
  std::vector<std::pair<std::string, std::string>> attributes = {{"tensor_key", Text(part.tensor)},
                                                                 {"global_offset", Ints(part.offset)}};
  if (!old) {
    attributes.emplace_back("is_flattened", Bool(!part.flat.empty()));
    attributes.emplace_back("flattened_range", part.flat.empty() ? None() : Ints(part.flat));
    attributes.emplace_back("replica_id", None());
    attributes.emplace_back("local_shape", Ints(part.shape));
  }
  return Object(Global(kModule, "LocalTensorIndex"), Attributes(attributes));
}

// Makes metadata, and with `old` as versions before 3.2 wrote it.
std::string Metadata(const std::vector<Part>& parts, bool old = false) {
  std::vector<std::pair<std::string, std::string>> described, stored;
  for (size_t i = 0; i < parts.size(); ++i) {
    std::vector<std::string> shards;
    for (const Part& part : parts) {
      if (part.tensor == parts[i].tensor) shards.push_back(Described(part, old));
    }
    const bool first = i == 0 || parts[i - 1].tensor != parts[i].tensor;
    if (first) described.emplace_back(Text(parts[i].tensor), List(shards));
    if (!parts[i].file.empty()) stored.emplace_back(Index(parts[i], old), Text(parts[i].file));
  }
  return Pickle(Object(Global(kModule, "Metadata"), Attributes({{"state_dict_metadata", Dict(described)},
                                                                {"storage_metadata", Dict(stored)},
                                                                {"flat_mapping", Dict({})}})));
}

void ExpectRefused(const std::vector<Part>& parts, Reason reason, const std::string& said) {
  const absl::Status status = ReadPaddleMetadata(Metadata(parts), "0.metadata").status();
  EXPECT_EQ(ReasonOf(status), reason) << status;
  EXPECT_NE(status.message().find(said), absl::string_view::npos) << status;
}

TEST(PaddleMetadataTest, Parts_OfSeveralFiles_AreSortedByFile) {
  const auto metadata = ReadPaddleMetadata(Metadata({{"w", {0, 0}, {4, 6}, {7, 6}, "0_0.distcp"},
                                                     {"w", {4, 0}, {3, 6}, {7, 6}, "1_0.distcp"},
                                                     {"b", {0}, {5}, {5}, "0_0.distcp", {}, "paddle.bfloat16"}}),
                                           "0.metadata");
  ASSERT_TRUE(metadata.ok()) << metadata.status();
  ASSERT_EQ(metadata->tensors.size(), 2u);
  EXPECT_EQ(metadata->tensors[0].name, "b");
  EXPECT_EQ(metadata->tensors[0].dtype, DType::kBfloat16);
  EXPECT_EQ(metadata->tensors[1].global_shape, (Shape{7, 6}));
  ASSERT_EQ(metadata->shards.size(), 3u);
  EXPECT_EQ(metadata->files[metadata->shards[0].file], "0_0.distcp");
  EXPECT_EQ(metadata->shards[0].tensor, 0u);
  EXPECT_EQ(metadata->files[metadata->shards[2].file], "1_0.distcp");
  EXPECT_EQ(metadata->box_of(metadata->shards[2]), (Box{{4, 0}, {3, 6}}));
}

TEST(PaddleMetadataTest, Parts_OfAFlattenedBox_MakeItUp) {
  const std::vector<Part> parts = {{"w", {0, 0}, {4, 6}, {8, 6}, "0_0.distcp", {0, 7}},
                                   {"w", {0, 0}, {4, 6}, {8, 6}, "1_0.distcp", {7, 24}},
                                   {"w", {4, 0}, {4, 6}, {8, 6}, "2_0.distcp"}};
  const auto metadata = ReadPaddleMetadata(Metadata(parts), "0.metadata");
  ASSERT_TRUE(metadata.ok()) << metadata.status();
  EXPECT_EQ(metadata->shards[1].flat, (FlatRange{7, 24}));
  EXPECT_EQ(metadata->shards[2].flat, std::nullopt);
  auto gap = parts;
  gap[1].flat = {8, 24};
  ExpectRefused(gap, Reason::kBadForeignFile, "do not make up its shape");
  auto overlap = parts;
  overlap[1].flat = {6, 24};
  ExpectRefused(overlap, Reason::kBadForeignFile, "do not make up its shape");
  auto outside = parts;
  outside[1].flat = {7, 25};
  ExpectRefused(outside, Reason::kBadForeignFile, "outside of its shape");
}

TEST(PaddleMetadataTest, Metadata_OfOldVersions_ShapeIsWhatTheShardsReach) {
  const auto metadata = ReadPaddleMetadata(
      Metadata({{"w", {0}, {3}, {}, "0_0.distcp"}, {"w", {3}, {2}, {}, "1_0.distcp"}}, true), "0.metadata");
  ASSERT_TRUE(metadata.ok()) << metadata.status();
  EXPECT_EQ(metadata->tensors[0].global_shape, (Shape{5}));
}

TEST(PaddleMetadataTest, Part_OfSeveralRanks_IsTakenOnce) {
  const auto metadata = ReadPaddleMetadata(
      Metadata({{"w", {0}, {3}, {3}, "0_0.distcp"}, {"w", {0}, {3}, {3}, "1_0.distcp"}}), "0.metadata");
  ASSERT_TRUE(metadata.ok()) << metadata.status();
  ASSERT_EQ(metadata->shards.size(), 1u);
  EXPECT_EQ(metadata->files[metadata->shards[0].file], "0_0.distcp");
}

TEST(PaddleMetadataTest, Tensor_WithoutElements_NeedsNoPart) {
  EXPECT_TRUE(ReadPaddleMetadata(Metadata({{"w", {0, 0}, {0, 4}, {0, 4}, "0_0.distcp"}}), "0.metadata").ok());
}

TEST(PaddleMetadataTest, Metadata_ContradictsItself_IsRefusedByName) {
  ExpectRefused({{"w", {0}, {3}, {5}, "0_0.distcp"}}, Reason::kBadForeignFile,
                "'w' that do not make up its shape (5,)");
  ExpectRefused({{"w", {0}, {3}, {3}, ""}}, Reason::kBadForeignFile, "does not say where the part [0, 3) of 'w'");
  ExpectRefused({{"w", {1}, {3}, {3}, "0_0.distcp"}}, Reason::kBadForeignFile, "outside of its shape (3,)");
  ExpectRefused({{"w", {0}, {3, 1}, {3}, "0_0.distcp"}}, Reason::kBadForeignFile, "0.metadata");
  ExpectRefused({{"w", {-1}, {3}, {3}, "0_0.distcp"}}, Reason::kBadForeignFile, "0.metadata");
  ExpectRefused({{"w", {0}, {3}, {3}, "0_0.distcp", {2, 1}}}, Reason::kBadForeignFile, "0.metadata");
  ExpectRefused({{"w", {0}, {2}, {3}, "0_0.distcp"}, {"w", {2}, {1}, {4}, "0_0.distcp"}}, Reason::kBadForeignFile,
                "'w' as a tensor");
  ExpectRefused({{"w", {0}, {int64_t{1} << 62}, {int64_t{1} << 62}, "0_0.distcp"}}, Reason::kBadForeignFile,
                "the shape");
}

TEST(PaddleMetadataTest, Metadata_OfHostileNames_IsRefused) {
  for (const char* file : {"../0_0.distcp", "/etc/passwd", "a/../../b"}) {
    ExpectRefused({{"w", {0}, {3}, {3}, file}}, Reason::kPathEscape, "is no path below the directory");
  }
  ExpectRefused({{"a\nb", {0}, {3}, {3}, "0_0.distcp"}}, Reason::kBadName, "0.metadata");
  ExpectRefused({{"w", {0}, {3}, {3}, "0_0.distcp", {}, "float128"}}, Reason::kUnsupported, "'float128'");
}

TEST(PaddleMetadataTest, File_OfAnotherKind_IsRefused) {
  for (const std::string& file : {std::string("no pickle"), Pickle(None()), Pickle(Dict({}))}) {
    EXPECT_EQ(ReasonOf(ReadPaddleMetadata(file, "0.metadata").status()), Reason::kBadForeignFile);
  }
}

}  // namespace
}  // namespace cairn
