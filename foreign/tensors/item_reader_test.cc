#include "foreign/tensors/item_reader.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/base/crc32c.h"
#include "common/base/random_id.h"
#include "common/file/unique_fd.h"
#include "common/resources/aligned_buffer.h"
#include "common/status/reason.h"
#include "foreign/write/testing/manifest_of.h"
#include "store/posix/posix_storage.h"

namespace cairn {
namespace {

constexpr int64_t kFirstBytes = (int64_t{3} << 20) + 1234;
constexpr int64_t kSecondBytes = (int64_t{2} << 20) + 4096;

// A file of two items, as Cairn writes it or as another library would.
class ItemReaderTest : public ::testing::Test {
 protected:
  ItemReaderTest() {
    std::filesystem::create_directories(root_);
    storage_ = *PosixStorage::Open(root_, false);
    manifest_ =
        testing::ManifestOf({{"first", DType::kUint8, {kFirstBytes}}, {"second", DType::kUint8, {kSecondBytes}}});
    for (char& byte : data_) byte = static_cast<char>(random_());
  }
  ~ItemReaderTest() override { std::filesystem::remove_all(root_); }

  void WriteBin() {
    manifest_.job = "demo";
    manifest_.step = 7;
    manifest_.attempt = 1;
    manifest_.files.resize(1);
    ManifestFile& file = manifest_.files[0];
    file.name = "rank00000-bin00";
    manifest_.shards[1].item = 1;
    std::vector<StoredItem> items = {manifest_.item_of(manifest_.shards[0]), manifest_.item_of(manifest_.shards[1])};
    const std::vector<ItemChecksums> checksums = {ChecksumsOf(data_.substr(0, kFirstBytes)),
                                                  ChecksumsOf(data_.substr(kFirstBytes))};
    const std::string header = RenderHeader(items, checksums);
    file.header_bytes = header.size();
    file.header_crc32c = Crc32c(header.data(), header.size());
    ASSERT_TRUE(manifest_.PlaceItems().ok());
    path_ = root_ + "/demo/" + manifest_.path_of(file);
    std::filesystem::create_directories(std::filesystem::path(path_).parent_path());
    WriteFile(header + data_);
  }

  // The data does not begin at a whole block.
  void WriteForeign() {
    path_ = std::filesystem::canonical(root_).string() + "/foreign";
    manifest_.files.resize(1);
    manifest_.files[0].name = path_;
    manifest_.files[0].header_bytes = 777;
    manifest_.shards[1].item = 1;
    ASSERT_TRUE(manifest_.PlaceItems().ok());
    WriteFile(std::string(777, 'h') + data_);
  }

  UniqueFd Open() const {
    UniqueFd fd(open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) std::abort();  // nothing could be tested
    return fd;
  }
  void WriteFile(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary) << bytes;
    const UniqueFd fd = Open();
    EXPECT_EQ(fsync(fd.get()), 0);
  }
  // Has the next read go past the page cache, where the file system can.
  void DropFromCache() const { EXPECT_EQ(posix_fadvise(Open().get(), 0, 0, POSIX_FADV_DONTNEED), 0); }
  void FlipByte(uint64_t offset) const {
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(static_cast<std::streamoff>(offset));
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(byte);
  }

  static ItemChecksums ChecksumsOf(const std::string& bytes) {
    ItemChecksums checksums;
    checksums.crc32c = Crc32c(bytes.data(), bytes.size());
    for (uint64_t at = 0; at < bytes.size(); at += kChecksumBlockBytes) {
      checksums.blocks.push_back(Crc32c(bytes.data() + at, std::min(kChecksumBlockBytes, bytes.size() - at)));
    }
    return checksums;
  }

  // Reads blocks [first, end) of both items to places that are aligned and to others, in both ways.
  void ReadAll() {
    ItemReader reader(storage_.get(), manifest_);
    for (int i = 0; i < 60; ++i) {
      if (i % 3 == 0) DropFromCache();
      const ManifestShard& shard = manifest_.shards[random_() % 2];
      const uint64_t blocks = ChecksumBlockCount(shard.bytes), first = random_() % blocks;
      const uint64_t begin = first * kChecksumBlockBytes;
      const uint64_t end = std::min((first + 1 + random_() % (blocks - first)) * kChecksumBlockBytes, shard.bytes);
      const std::string wanted = data_.substr((shard.item == 0 ? 0 : kFirstBytes) + begin, end - begin);
      AlignedBuffer scratch(ItemReader::ScratchBytes(wanted.size()));
      auto* const own = reinterpret_cast<std::byte*>(scratch.data());
      if (i % 2 == 0) {
        const auto found = reader.ReadInto(shard, begin, wanted.size(), own);
        ASSERT_TRUE(found.ok()) << found.status();
        ASSERT_EQ(std::memcmp(*found, wanted.data(), wanted.size()), 0);
        continue;
      }
      AlignedBuffer place(wanted.size() + 2 * kIoAlignment);
      const uint64_t at = random_() % 2 ? kIoAlignment : 1 + random_() % kIoAlignment;
      std::memset(place.data(), '#', place.size());
      const absl::Status read =
          reader.Read(shard, begin, wanted.size(), reinterpret_cast<std::byte*>(place.data()) + at, own);
      ASSERT_TRUE(read.ok()) << read;
      const std::string expected = std::string(at, '#') + wanted + std::string(place.size() - at - wanted.size(), '#');
      ASSERT_TRUE(std::string(place.data(), place.size()) == expected) << "round " << i;
    }
  }

  const std::string root_ = ::testing::TempDir() + "/items-" + RandomToken(8);
  std::unique_ptr<PosixStorage> storage_;
  Manifest manifest_;
  std::string path_;
  std::mt19937_64 random_{11};
  std::string data_ = std::string(kFirstBytes + kSecondBytes, '\0');
};

TEST_F(ItemReaderTest, Read_AnyBlocksToAnyPlace_GivesTheBytesAndTouchesNothingAround) {
  WriteBin();
  ReadAll();
}

TEST_F(ItemReaderTest, Read_FileOfAnotherLibrary_GivesTheBytesAndTouchesNothingAround) {
  WriteForeign();
  ReadAll();
}

TEST_F(ItemReaderTest, Read_AFlippedBit_IsToldWithItsBlock) {
  WriteBin();
  const ManifestShard& shard = manifest_.shards[1];
  FlipByte(shard.file_offset + kChecksumBlockBytes + 5);
  for (const bool cached : {true, false}) {
    if (!cached) DropFromCache();
    ItemReader reader(storage_.get(), manifest_);
    AlignedBuffer scratch(ItemReader::ScratchBytes(shard.bytes));
    const auto read = reader.ReadInto(shard, 0, shard.bytes, reinterpret_cast<std::byte*>(scratch.data()));
    EXPECT_EQ(ReasonOf(read.status()), Reason::kChecksumMismatch);
    EXPECT_EQ(MetadataOf(read.status())["offset"], std::to_string(shard.file_offset + kChecksumBlockBytes));
    EXPECT_EQ(MetadataOf(read.status())["tensor"], "second");
    EXPECT_TRUE(reader.ReadInto(shard, 0, kChecksumBlockBytes, reinterpret_cast<std::byte*>(scratch.data())).ok())
        << "the block before is whole";
  }
}

TEST_F(ItemReaderTest, Read_FileIsCutOff_IsTruncated) {
  WriteForeign();
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - 1);
  ItemReader reader(nullptr, manifest_);
  AlignedBuffer scratch(ItemReader::ScratchBytes(kChecksumBlockBytes));
  const auto read =
      reader.ReadInto(manifest_.shards[0], 0, kChecksumBlockBytes, reinterpret_cast<std::byte*>(scratch.data()));
  EXPECT_EQ(ReasonOf(read.status()), Reason::kFileTruncated);
}

}  // namespace
}  // namespace cairn
