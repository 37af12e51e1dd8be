#include "foreign/read/dcp/dcp_metadata.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "common/status/reason.h"
#include "foreign/read/testing/pickle_writer.h"

namespace cairn {
namespace {

using pickle_writer::Attributes;
using pickle_writer::Dict;
using pickle_writer::Global;
using pickle_writer::Int;
using pickle_writer::Ints;
using pickle_writer::List;
using pickle_writer::None;
using pickle_writer::Object;
using pickle_writer::Pickle;
using pickle_writer::Text;
using pickle_writer::Tuple;

using Dims = std::vector<int64_t>;

constexpr char kModule[] = "torch.distributed.checkpoint.metadata";

// Returns a chunk with its offsets and its sizes.
std::string Chunk(const Dims& offsets, const Dims& sizes) {
  return Object(Global(kModule, "ChunkStorageMetadata"),
                Attributes({{"offsets", Ints(offsets)}, {"sizes", Ints(sizes)}}));
}
std::string Tensor(const Dims& shape, const std::vector<std::string>& chunks, const std::string& dtype = "float32") {
  const std::string properties = Object(Global(kModule, "TensorProperties"), Tuple({Global("torch", dtype), None()}));
  return Object(Global(kModule, "TensorStorageMetadata"),
                Attributes({{"properties", properties}, {"size", Ints(shape)}, {"chunks", List(chunks)}}));
}
std::string Value() { return Object(Global(kModule, "BytesStorageMetadata"), Dict({})); }

// Returns a pair of storage_data, which says where a chunk lies, or a value, which has no offset.
std::pair<std::string, std::string> Stored(const std::string& name, const std::string& offset, const std::string& file,
                                           int64_t at, int64_t bytes, const std::string& transforms = None()) {
  return {Object(Global(kModule, "MetadataIndex"), Attributes({{"fqn", Text(name)}, {"offset", offset}})),
          Object(Global("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
                 Attributes({{"relative_path", Text(file)},
                             {"offset", Int(at)},
                             {"length", Int(bytes)},
                             {"transform_descriptors", transforms}}))};
}

using Pairs = std::vector<std::pair<std::string, std::string>>;
absl::StatusOr<DcpMetadata> Read(const Pairs& described, const Pairs& stored) {
  return ReadDcpMetadata(
      Pickle(Object(Global(kModule, "Metadata"),
                    Attributes({{"state_dict_metadata", Attributes(described)}, {"storage_data", Dict(stored)}}))),
      ".metadata");
}
Reason ReasonOfReading(const Pairs& described, const Pairs& stored) {
  const auto metadata = Read(described, stored);
  EXPECT_FALSE(metadata.ok());
  return ReasonOf(metadata.status()).value_or(Reason::kInternal);
}

// This tensor of 4 x 3 has two chunks of rows, in one file each.
const std::pair<std::string, std::string> kWeight = {"weight",
                                                     Tensor({4, 3}, {Chunk({0, 0}, {2, 3}), Chunk({2, 0}, {2, 3})})};
const Pairs kHalves = {Stored("weight", Ints({2, 0}), "__1_0.distcp", 0, 500),
                       Stored("weight", Ints({0, 0}), "__0_0.distcp", 0, 500)};

TEST(DcpMetadataTest, Read_ChunksAndValues_SaysWhereEachLies) {
  Pairs stored = kHalves;
  stored.push_back(Stored("epoch", None(), "__0_0.distcp", 500, 60));
  const auto metadata = Read({kWeight, {"epoch", Value()}}, stored);
  ASSERT_TRUE(metadata.ok()) << metadata.status();
  ASSERT_EQ(metadata->tensors.size(), 1);
  EXPECT_EQ(metadata->tensors[0].name, "weight");
  EXPECT_EQ(metadata->tensors[0].dtype, DType::kFloat32);
  EXPECT_EQ(metadata->values, (std::vector<std::string>{"epoch"}));
  ASSERT_EQ(metadata->entries.size(), 3);
  int chunks = 0;
  for (const DcpEntry& entry : metadata->entries) {
    if (entry.tensor == DcpEntry::kNoTensor) {
      EXPECT_EQ(entry.offset, 500);
      EXPECT_EQ(metadata->files[entry.file], "__0_0.distcp");
      continue;
    }
    ++chunks;
    const bool second = metadata->files[entry.file] == "__1_0.distcp";
    EXPECT_EQ(metadata->offset_of(entry)[0], second ? 2 : 0);
    EXPECT_EQ(metadata->shape_of(entry)[0], 2);
    EXPECT_EQ(metadata->shape_of(entry)[1], 3);
  }
  EXPECT_EQ(chunks, 2);
}

TEST(DcpMetadataTest, Read_AScalar_HasOneChunkWithoutDimensions) {
  const auto metadata = Read({{"scale", Tensor({}, {Chunk({}, {})})}}, {Stored("scale", Ints({}), "file", 0, 10)});
  ASSERT_TRUE(metadata.ok()) << metadata.status();
  EXPECT_EQ(metadata->entries.size(), 1);
}

TEST(DcpMetadataTest, Read_AChunkIsMissing_IsRefused) {
  EXPECT_EQ(ReasonOfReading({kWeight}, {kHalves[0]}), Reason::kBadForeignFile) << "it lies nowhere";
  EXPECT_EQ(ReasonOfReading({{"weight", Tensor({4, 3}, {Chunk({0, 0}, {2, 3})})}}, {kHalves[1]}),
            Reason::kBadForeignFile)
      << "it is not described";
  EXPECT_EQ(ReasonOfReading({{"weight", Tensor({4, 3}, {Chunk({0, 0}, {2, 3})})}}, kHalves), Reason::kBadForeignFile)
      << "only one of the two is described";
}

TEST(DcpMetadataTest, Read_ChunksThatOverlapInTheTensor_AreRefused) {
  EXPECT_EQ(ReasonOfReading({{"weight", Tensor({4, 3}, {Chunk({0, 0}, {3, 3}), Chunk({2, 0}, {2, 3})})}}, kHalves),
            Reason::kBadForeignFile);
  EXPECT_EQ(ReasonOfReading({{"weight", Tensor({4, 3}, {Chunk({0, 0}, {2, 3}), Chunk({2, 0}, {3, 3})})}}, kHalves),
            Reason::kBadForeignFile)
      << "one ends outside";
}

TEST(DcpMetadataTest, Read_RangesThatOverlapInAFile_AreRefused) {
  EXPECT_EQ(ReasonOfReading({kWeight}, {Stored("weight", Ints({0, 0}), "file", 0, 500),
                                        Stored("weight", Ints({2, 0}), "file", 499, 500)}),
            Reason::kBadForeignFile);
  EXPECT_EQ(ReasonOfReading({kWeight}, {Stored("weight", Ints({0, 0}), "file", 0, 500),
                                        Stored("weight", Ints({2, 0}), "file", INT64_MAX - 5, 500)}),
            Reason::kBadForeignFile);
}

TEST(DcpMetadataTest, Read_AFileThatIsNotBelowTheDirectory_IsRefused) {
  for (const std::string file : {"../x", "a/../../x", "/etc/passwd", "", "a//b", "./a"}) {
    EXPECT_EQ(ReasonOfReading({{"epoch", Value()}}, {Stored("epoch", None(), file, 0, 10)}), Reason::kPathEscape)
        << file;
  }
}

TEST(DcpMetadataTest, Read_AnEntryThroughAnExtension_IsUnsupported) {
  EXPECT_EQ(ReasonOfReading({{"epoch", Value()}}, {Stored("epoch", None(), "file", 0, 10, List({Text("zstd")}))}),
            Reason::kUnsupported);
  EXPECT_TRUE(Read({{"epoch", Value()}}, {Stored("epoch", None(), "file", 0, 10, List({}))}).ok());
}

TEST(DcpMetadataTest, Read_ADtypeThatCairnDoesNotKnow_IsUnsupported) {
  EXPECT_EQ(ReasonOfReading({{"q", Tensor({1}, {Chunk({0}, {1})}, "qint8")}}, {Stored("q", Ints({0}), "file", 0, 10)}),
            Reason::kUnsupported);
}

TEST(DcpMetadataTest, Read_NamesThatContradictEachOther_AreRefused) {
  const auto epoch = Stored("epoch", None(), "file", 0, 10);
  EXPECT_EQ(ReasonOfReading({}, {epoch}), Reason::kBadForeignFile) << "stored, but not described";
  EXPECT_EQ(ReasonOfReading({{"epoch", Value()}}, {}), Reason::kBadForeignFile) << "described, but not stored";
  EXPECT_EQ(ReasonOfReading({{"epoch", Value()}, {"epoch", Value()}}, {epoch}), Reason::kBadForeignFile) << "twice";
  EXPECT_EQ(ReasonOfReading({{"epoch", Value()}}, {epoch, Stored("epoch", None(), "file", 10, 10)}),
            Reason::kBadForeignFile)
      << "stored twice";
}

// Else a small file could take hours.
TEST(DcpMetadataTest, Read_ManyTensorsThatShareAListOfChunks_AreRefused) {
  constexpr int kTensors = 1000;
  const std::vector<std::string> chunks(kTensors, Chunk({0}, {0}));
  const std::string properties =
      Object(Global(kModule, "TensorProperties"), Tuple({Global("torch", "float32"), None()}));
  Pairs described;
  for (int i = 0; i < kTensors; ++i) {
    const std::string shared = i == 0 ? List(chunks) + "q\x07" : "h\x07";
    described.emplace_back("t" + std::to_string(i),
                           Object(Global(kModule, "TensorStorageMetadata"),
                                  Attributes({{"properties", properties}, {"size", Ints({0})}, {"chunks", shared}})));
  }
  const auto metadata = Read(described, {});
  EXPECT_EQ(ReasonOf(metadata.status()), Reason::kBadForeignFile);
}

// Many entries of a small file could name one.
TEST(DcpMetadataTest, Read_AnIndexOfAThousandAttributes_IsRefused) {
  const Pairs described = {{"v", Value()}};
  for (const size_t count : {2, 1001}) {
    Pairs stored = {Stored("v", None(), "__0_0.distcp", 0, 500)};
    stored[0].first = Object(Global(kModule, "MetadataIndex"), Attributes(Pairs(count, std::pair("fqn", Text("v")))));
    EXPECT_EQ(Read(described, stored).ok(), count == 2);
  }
}

TEST(DcpMetadataTest, Read_AnotherPickle_IsRefused) {
  const auto metadata = ReadDcpMetadata(Pickle(Tuple({Int(1)})), ".metadata");
  EXPECT_TRUE(HasReason(metadata.status(), Reason::kBadForeignFile));
}

TEST(DcpMetadataTest, Read_AShapeThatOverflows_IsRefused) {
  const int64_t huge = int64_t{1} << 40;
  EXPECT_EQ(ReasonOfReading({{"huge", Tensor({huge, huge}, {Chunk({0, 0}, {huge, huge})})}},
                            {Stored("huge", Ints({0, 0}), "file", 0, 10)}),
            Reason::kBadForeignFile);
}

TEST(DcpMetadataTest, Read_TwoTensorsOfTheSameBytes_AreOneWithAnAlias) {
  const auto tied = [](const std::string& name, int64_t at) { return Stored(name, Ints({0}), "file", at, 100); };
  const std::string tensor = Tensor({5}, {Chunk({0}, {5})});
  const auto metadata = Read({{"embed", tensor}, {"head", tensor}, {"other", tensor}},
                             {tied("embed", 0), tied("head", 0), tied("other", 100)});
  ASSERT_TRUE(metadata.ok()) << metadata.status();
  ASSERT_EQ(metadata->tensors.size(), 2);
  EXPECT_EQ(metadata->tensors[1].name, "other");
  EXPECT_EQ(metadata->aliases, (std::vector<std::pair<std::string, std::string>>{{"head", "embed"}}));
}

}  // namespace
}  // namespace cairn
