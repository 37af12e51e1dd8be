#include "foreign/read/torch/zip_archive.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "common/status/reason.h"
#include "foreign/read/testing/zip_writer.h"

namespace cairn {
namespace {

const std::vector<std::pair<std::string, std::string>> kRecords = {
    {"data.pkl", "the pickle"}, {"data/0", std::string(1000, 'x')}, {"empty", ""}};

// Reads of the archive are within it: a test fails if one is not.
absl::StatusOr<ZipArchive> Open(const std::string& bytes) {
  const ReadRange read = [&](uint64_t offset, uint64_t length) -> absl::StatusOr<std::string> {
    EXPECT_LE(offset, bytes.size());
    EXPECT_LE(length, bytes.size() - offset);
    return bytes.substr(offset, length);
  };
  return ZipArchive::Open(bytes.size(), read, "file");
}
Reason ReasonOfOpening(const std::string& bytes) {
  const auto archive = Open(bytes);
  EXPECT_FALSE(archive.ok());
  return ReasonOf(archive.status()).value_or(Reason::kInternal);
}
void ExpectRecords(const std::string& bytes) {
  const auto archive = Open(bytes);
  ASSERT_TRUE(archive.ok()) << archive.status();
  ASSERT_EQ(archive->records().size(), kRecords.size());
  for (const auto& [name, content] : kRecords) {
    const ZipRecord* record = archive->Find(name);
    ASSERT_NE(record, nullptr) << name;
    EXPECT_EQ(bytes.substr(record->offset, record->bytes), content);
  }
  EXPECT_EQ(archive->Find("archive/data.pkl"), nullptr) << "names are without the archive's directory";
}

TEST(ZipArchiveTest, Open_AnArchive_SaysWhereTheBytesOfEachRecordLie) { ExpectRecords(WriteZip(kRecords)); }

TEST(ZipArchiveTest, Open_PaddedRecords_LooksBehindThePadding) { ExpectRecords(WriteZip(kRecords, {.padding = 61})); }

TEST(ZipArchiveTest, Open_NumbersOf64Bits_AreFound) { ExpectRecords(WriteZip(kRecords, {.wide = true})); }

TEST(ZipArchiveTest, Open_NoRecords_IsAnEmptyArchive) {
  const auto archive = Open(WriteZip({}));
  ASSERT_TRUE(archive.ok()) << archive.status();
  EXPECT_TRUE(archive->records().empty());
}

TEST(ZipArchiveTest, Open_ACompressedRecord_IsUnsupported) {
  EXPECT_EQ(ReasonOfOpening(WriteZip(kRecords, {.method = 8})), Reason::kUnsupported);
}

TEST(ZipArchiveTest, Open_EveryPrefix_IsRefused) {
  const std::string bytes = WriteZip(kRecords);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(ReasonOfOpening(bytes.substr(0, size)), Reason::kBadForeignFile) << size;
  }
}

TEST(ZipArchiveTest, Open_AnyByteIsDamaged_NamesNoBytesOutsideOfTheArchive) {
  for (const bool wide : {false, true}) {
    const std::string valid = WriteZip(kRecords, {.wide = wide});
    for (size_t at = 0; at < valid.size(); ++at) {
      for (const char value : {'\x00', '\x01', '\x7f', '\xff'}) {
        std::string damaged = valid;
        damaged[at] = value;
        const auto archive = Open(damaged);
        if (!archive.ok()) continue;
        for (const ZipRecord& record : archive->records()) {
          EXPECT_LE(record.offset, damaged.size());
          EXPECT_LE(record.bytes, damaged.size() - record.offset);
        }
      }
    }
  }
}

TEST(ZipArchiveTest, Open_MoreEntriesThanTheDirectoryHasRoomFor_IsRefused) {
  std::string bytes = WriteZip(kRecords);
  bytes[bytes.size() - 12] = '\xff';
  bytes[bytes.size() - 11] = '\xff';
  EXPECT_EQ(ReasonOfOpening(bytes), Reason::kBadForeignFile);
}

}  // namespace
}  // namespace cairn
