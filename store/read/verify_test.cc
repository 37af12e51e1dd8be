#include "store/read/verify.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "common/base/crc32c.h"
#include "common/base/crc64.h"
#include "common/format/checkpoint_path.h"
#include "common/format/safetensors_header.h"
#include "store/posix/posix_storage.h"

namespace cairn {
namespace {

// Makes a checkpoint of two files by hand: one has "w" of 20 MiB + 5, the other "v" and an object.
class VerifyTest : public testing::Test {
 protected:
  VerifyTest() {
    std::string pattern = testing::TempDir() + "/verify_XXXXXX";
    root_ = mkdtemp(pattern.data());
    storage_ = *PosixStorage::Open(root_, true);
    manifest_.job = "j";
    manifest_.step = 1;
    manifest_.attempt = 1;
    manifest_.world_size = 2;
    EXPECT_TRUE(storage_->MakeDirectories(AttemptDirectory("j", 1, 1)).ok());
    AddTensor("v", 1001);
    AddTensor("w", (20 << 20) + 5);
    std::vector<StoredItem> first = {manifest_.item_of(manifest_.shards[0])};
    manifest_.objects.push_back({.name = "o", .file = 0, .item = 1, .slot_bytes = 4096, .bytes = 10});
    first.push_back(Manifest::item_of(manifest_.objects[0]));
    manifest_.shards[1].file = 1;
    manifest_.shards[1].item = 0;
    WriteFile(0, first);
    WriteFile(1, {manifest_.item_of(manifest_.shards[1])});
    EXPECT_TRUE(manifest_.PlaceItems().ok());
  }
  ~VerifyTest() override { std::filesystem::remove_all(root_); }

  void AddTensor(const std::string& name, int64_t size) {
    const auto index = static_cast<uint32_t>(manifest_.tensors.size());
    manifest_.tensors.push_back({name, DType::kUint8, {size}, index, 1});
    ManifestShard shard;
    shard.tensor = index;
    shard.dims = static_cast<uint32_t>(manifest_.dims.size());
    manifest_.dims.insert(manifest_.dims.end(), {0, size});
    manifest_.shards.push_back(shard);
  }

  void WriteFile(uint32_t file, const std::vector<StoredItem>& items) {
    std::mt19937 random(file + 1);
    std::string data;
    std::vector<ItemChecksums> checksums;
    for (const StoredItem& item : items) {
      std::string bytes(item.bytes(), '\0');
      for (char& byte : bytes) byte = static_cast<char>(random());
      ItemChecksums one{.crc32c = Crc32c(bytes.data(), bytes.size())};
      for (uint64_t at = 0; at < bytes.size(); at += kChecksumBlockBytes) {
        one.blocks.push_back(Crc32c(bytes.data() + at, std::min<uint64_t>(kChecksumBlockBytes, bytes.size() - at)));
      }
      if (item.object) {
        one.object_bytes = 10;
        manifest_.objects[0].crc32c = one.crc32c;
      } else {
        for (ManifestShard& shard : manifest_.shards) {
          if (manifest_.tensors[shard.tensor].name == item.name) shard.crc32c = one.crc32c;
        }
      }
      checksums.push_back(one);
      data += bytes;
    }
    const std::string header = RenderHeader(items, checksums);
    manifest_.files.push_back({.name = BinName(static_cast<int>(file), 0),
                               .rank = static_cast<int>(file),
                               .header_bytes = header.size(),
                               .data_bytes = data.size(),
                               .header_crc32c = Crc32c(header.data(), header.size())});
    std::ofstream(Path(file), std::ios::binary) << header << data;
  }

  std::string Path(uint32_t file) const {
    return root_ + "/" + AttemptDirectory("j", 1, 1) + "/" + BinName(static_cast<int>(file), 0) + ".safetensors";
  }
  void Flip(uint32_t file, uint64_t offset) {
    std::fstream stream(Path(file), std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(offset));
    const char byte = static_cast<char>(stream.get());
    stream.seekp(static_cast<std::streamoff>(offset));
    stream.put(static_cast<char>(byte ^ 0x10));
  }
  VerifyReport Verify() { return VerifyCheckpoint(*storage_, manifest_, {}); }

  std::string root_;
  std::unique_ptr<PosixStorage> storage_;
  Manifest manifest_;
};

TEST_F(VerifyTest, VerifyCheckpoint_WholeCheckpoint_ReadsEveryByteAndFindsNothing) {
  const VerifyReport report = Verify();
  EXPECT_TRUE(report.faults.empty()) << report.faults[0].message;
  EXPECT_EQ(report.bytes, manifest_.total_bytes());
  EXPECT_EQ(report.files, 2u);
}

TEST_F(VerifyTest, VerifyCheckpoint_WithFingerprints_TellsThoseOfTheTensorsBytes) {
  const VerifyReport report = VerifyCheckpoint(*storage_, manifest_, {.fingerprints = true});
  ASSERT_EQ(report.fingerprints.size(), 2u);
  for (const uint32_t tensor : {0u, 1u}) {
    const ManifestShard& shard = manifest_.shards[tensor];
    std::ifstream file(Path(shard.file), std::ios::binary);
    file.seekg(static_cast<std::streamoff>(shard.file_offset));
    std::string bytes(shard.bytes, '\0');
    file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    EXPECT_EQ(report.fingerprints[tensor],
              Crc64FromRemainder(ExtendRemainder64(0, bytes.data(), bytes.size()), bytes.size()));
  }
  EXPECT_TRUE(Verify().fingerprints.empty()) << "nobody asked";
  Flip(1, manifest_.files[1].header_bytes);
  EXPECT_TRUE(VerifyCheckpoint(*storage_, manifest_, {.fingerprints = true}).fingerprints.empty())
      << "of damaged bytes nothing is told";
}

TEST_F(VerifyTest, VerifyCheckpoint_FlippedBit_IsFoundWithFileBlockAndTensor) {
  const uint64_t begin = manifest_.files[1].header_bytes;
  for (uint64_t at : {uint64_t{0}, uint64_t{8 << 20}, uint64_t{(8 << 20) - 1}, uint64_t{(20 << 20) + 4}}) {
    Flip(1, begin + at);
    const VerifyReport report = Verify();
    ASSERT_EQ(report.faults.size(), 1u) << at;
    EXPECT_EQ(report.faults[0].reason, Reason::kChecksumMismatch);
    EXPECT_EQ(report.faults[0].tensor, "w");
    EXPECT_EQ(report.faults[0].offset, begin + at / kChecksumBlockBytes * kChecksumBlockBytes);
    Flip(1, begin + at);
  }
  Flip(0, 100);
  EXPECT_EQ(Verify().faults.at(0).offset, 0u);
}

// Blanks at the end change nothing of what a header says. Its checksum alone tells.
TEST_F(VerifyTest, VerifyCheckpoint_OtherBlankInAHeader_IsFound) {
  std::fstream stream(Path(0), std::ios::in | std::ios::out | std::ios::binary);
  const auto last = static_cast<std::streamoff>(manifest_.files[0].header_bytes - 1);
  stream.seekg(last);
  ASSERT_EQ(stream.get(), ' ');
  stream.seekp(last);
  stream.put('\n').flush();
  const VerifyReport report = Verify();
  ASSERT_EQ(report.faults.size(), 1u);
  EXPECT_EQ(report.faults[0].reason, Reason::kChecksumMismatch);
}

TEST_F(VerifyTest, VerifyCheckpoint_TruncatedMissingOrLongerFile_IsFound) {
  const uint64_t size = manifest_.files[1].bytes();
  std::filesystem::resize_file(Path(1), size - 1);
  EXPECT_EQ(Verify().faults.at(0).reason, Reason::kFileTruncated);
  std::filesystem::resize_file(Path(1), 10);
  EXPECT_EQ(Verify().faults.at(0).reason, Reason::kFileTruncated);
  std::filesystem::resize_file(Path(1), 0);
  EXPECT_EQ(Verify().faults.at(0).reason, Reason::kFileTruncated);
  std::filesystem::remove(Path(1));
  EXPECT_EQ(Verify().faults.at(0).reason, Reason::kFileMissing);
  std::filesystem::resize_file(Path(0), manifest_.files[0].bytes() + 1);
  EXPECT_EQ(Verify().faults.size(), 2u);
}

TEST_F(VerifyTest, VerifyCheckpoint_APipeStandsThere_IsNotWaitedFor) {
  std::filesystem::remove(Path(1));
  ASSERT_EQ(mkfifo(Path(1).c_str(), 0600), 0);
  EXPECT_EQ(Verify().faults.size(), 1u);
}

TEST_F(VerifyTest, VerifyCheckpoint_HeaderOfAnotherFile_IsFound) {
  std::filesystem::copy_file(Path(0), Path(1), std::filesystem::copy_options::overwrite_existing);
  manifest_.files[1].header_crc32c = manifest_.files[0].header_crc32c;
  const VerifyReport report = Verify();
  ASSERT_FALSE(report.faults.empty());
}

}  // namespace
}  // namespace cairn
