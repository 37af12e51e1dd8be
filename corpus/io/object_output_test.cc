#include "corpus/io/object_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/made_directory.h"
#include "corpus/io/output_file.h"
#include "corpus/io/output_place.h"
#include "corpus/io/testing/memory_stores.h"

namespace cairn::corpus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kName[] = "s3://bucket/out/text";

TEST(ObjectOutputTest, Publish_PartsOfManyAppends_AreTheObjectAtOnce) {
  MemoryStores stores;
  for (const size_t size : {0u, 1u, 999u, 1000u, 1001u, 20'000u, 54'321u}) {
    stores.Put(kName, "old");
    std::string text;
    const auto file = *OutputFile::Create(kName, {});
    EXPECT_TRUE(file->is_object());
    EXPECT_EQ(file->path(), kName);
    while (text.size() < size) {
      const std::string piece(std::min<size_t>(size - text.size(), text.size() % 777 + 1),
                              static_cast<char>('a' + text.size() % 26));
      ASSERT_TRUE(file->Append(piece).ok());
      text += piece;
    }
    ASSERT_TRUE(file->Finish().ok());
    EXPECT_EQ(stores.Get(kName), "old") << "not before it has its name";
    ASSERT_TRUE(file->Commit().ok());
    EXPECT_EQ(stores.Get(kName), text) << size;
    EXPECT_EQ(file->bytes(), size);
    EXPECT_EQ(stores.unfinished(), 0);
  }
}

TEST(ObjectOutputTest, Destroy_WithoutAName_LeavesNothing) {
  MemoryStores stores;
  stores.Put(kName, "old");
  for (const size_t size : {0u, 10u, 20'000u}) {
    const auto file = *OutputFile::Create(kName, {});
    ASSERT_TRUE(file->Append(std::string(size, 'x')).ok());
    EXPECT_EQ(stores.unfinished(), 1);
  }
  EXPECT_EQ(stores.unfinished(), 0);
  EXPECT_EQ(stores.Get(kName), "old");
}

TEST(ObjectOutputTest, Append_AfterAPartThatFailed_TellsItsError) {
  MemoryStores stores;
  stores.before_send = [](const std::string&, int part) {
    return part == 3 ? MakeError(Reason::kStorageReadOnly, "it was planted") : absl::OkStatus();
  };
  const auto file = *OutputFile::Create(kName, {});
  absl::Status status;
  for (int i = 0; i < 1000 && status.ok(); ++i) status = file->Append(std::string(500, 'x'));
  EXPECT_TRUE(HasReason(status, Reason::kStorageReadOnly)) << status;
  EXPECT_LT(file->bytes(), 20'000u) << "the error shows soon";
  EXPECT_TRUE(HasReason(file->Commit(), Reason::kStorageReadOnly));
  EXPECT_EQ(stores.Get(kName), "none");
}

TEST(ObjectOutputTest, Finish_TheLastPartFails_IsItsError) {
  MemoryStores stores;
  stores.before_send = [](const std::string&, int) { return MakeError(Reason::kStorageError, "it was planted"); };
  const auto file = *OutputFile::Create(kName, {});
  ASSERT_TRUE(file->Append("short").ok());
  EXPECT_TRUE(HasReason(file->Finish(), Reason::kStorageError));
}

TEST(ObjectOutputTest, Append_Parts_AreSentAtTheSameTimeButNoMoreThanAsked) {
  MemoryStores stores;
  std::atomic<int> now = 0, most = 0;
  stores.before_send = [&](const std::string&, int) {
    const int count = ++now;
    for (int before = most; count > before && !most.compare_exchange_weak(before, count);) continue;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    --now;
    return absl::OkStatus();
  };
  const auto file = *OutputFile::Create(kName, {.object_parts = 3});
  ASSERT_TRUE(file->Append(std::string(30'000, 'x')).ok());
  ASSERT_TRUE(file->Commit().ok());
  EXPECT_EQ(most, 3);
}

TEST(ObjectOutputTest, Append_MoreThanAStoreTakes_SaysHowToWriteIt) {
  MemoryStores stores;
  stores.most_parts = 5;
  const auto file = *OutputFile::Create(kName, {});
  const absl::Status status = file->Append(std::string(5001, 'x'));
  EXPECT_TRUE(HasReason(status, Reason::kBadRequest)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("more than 5000 bytes"));
  EXPECT_THAT(NextActionOf(status), HasSubstr("--split-bytes"));
}

TEST(ObjectOutputTest, Place_OfAnAddress) {
  MemoryStores stores;
  const auto place = FindOutputPlace("s3://bucket/out/x");
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_TRUE(place->object);
  EXPECT_TRUE(FindReplaceable("s3://bucket/out/x").ok());
  for (const char* directory : {"s3://bucket/out/", "s3://bucket"}) {
    EXPECT_TRUE(HasReason(FindOutputPlace(directory).status(), Reason::kBadRequest)) << directory;
  }
  EXPECT_TRUE(MadeDirectory::Of("s3://bucket/out/x").ok());
  EXPECT_EQ(ScratchDirectoryFor("s3://bucket/out/x"), ScratchDirectoryFor("/dev/null"));
  EXPECT_TRUE(HasReason(CheckIsNoInput("s3://bucket/out/x", "s3://bucket/out/x"), Reason::kBadRequest));
  EXPECT_TRUE(CheckIsNoInput("s3://bucket/out/x", "s3://bucket/out/y").ok());
  EXPECT_TRUE(CheckIsNoInput("s3://bucket/out/x", "/tmp/x").ok());
}

TEST(ObjectOutputTest, RemoveReplaced_Objects_GoInTheirOrder) {
  MemoryStores stores;
  stores.Put("s3://bucket/a", "1");
  stores.Put("s3://bucket/b", "2");
  const std::array<std::string, 3> names = {"s3://bucket/b", "s3://bucket/none", "s3://bucket/a"};
  EXPECT_TRUE(RemoveReplaced(names).ok());
  EXPECT_THAT(stores.changes(), ElementsAre("-s3://bucket/b", "-s3://bucket/a"));
}

}  // namespace
}  // namespace cairn::corpus
