#include "corpus/io/object_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "common/resources/aligned_buffer.h"
#include "common/status/reason.h"
#include "corpus/io/open_source.h"
#include "corpus/io/testing/memory_stores.h"

namespace cairn::corpus {
namespace {

constexpr char kName[] = "s3://bucket/text";

// Bytes that tell their place.
std::string Text(size_t size) {
  std::string text(size, '\0');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>((i * 2654435761u) >> 13);
  return text;
}

// Reads to the end. Returns what came, and sets what it failed with.
std::string ReadAll(ByteSource& source, absl::Status* error = nullptr) {
  AlignedBuffer buffer(64 << 10);
  std::string all;
  while (true) {
    const auto count = source.Read(buffer.data(), buffer.size());
    if (!count.ok()) {
      EXPECT_NE(error, nullptr) << count.status();
      if (error != nullptr) *error = count.status();
      return all;
    }
    if (*count == 0) return all;
    all.append(buffer.data(), *count);
  }
}

TEST(ObjectSourceTest, Read_AllOfIt_IsTheObject) {
  for (const size_t size : {0u, 1u, 262143u, 262144u, 262145u, 5'000'000u, 20'000'000u}) {
    MemoryStores stores;
    stores.Put(kName, Text(size));
    for (const uint64_t memory : {uint64_t{2} << 20, uint64_t{8} << 20, uint64_t{32} << 20}) {
      std::atomic<uint64_t> counted = 0;
      const auto source = OpenSource(kName, {.file_bytes = &counted, .read_ahead = memory});
      ASSERT_TRUE(source.ok()) << source.status();
      EXPECT_EQ(ReadAll(**source), Text(size)) << size;
      EXPECT_EQ(counted, size);
      EXPECT_TRUE((*source)->direct());
    }
  }
}

TEST(ObjectSourceTest, Read_FromAPlaceOn_IsTheRest) {
  MemoryStores stores;
  const std::string text = Text(9'000'000);
  stores.Put(kName, text);
  for (const auto& [begin, soft_end] : std::vector<std::pair<uint64_t, uint64_t>>{
           {0, 100}, {12'345, 12'346}, {12'345, 5'000'000}, {8'999'999, UINT64_MAX}, {9'000'000, UINT64_MAX}}) {
    const auto source = OpenPlainSource(kName, begin, soft_end, {});
    ASSERT_TRUE(source.ok()) << source.status();
    EXPECT_EQ(ReadAll(**source), text.substr(begin)) << begin << " " << soft_end;
  }
}

TEST(ObjectSourceTest, Read_Parts_AreUnderWayAtTheSameTimeAndWithinTheMemory) {
  MemoryStores stores;
  stores.Put(kName, Text(30'000'000));
  std::atomic<int> now = 0, most = 0;
  std::atomic<uint64_t> furthest = 0;
  stores.before_read = [&](const std::string&, uint64_t offset) {
    int count = ++now;
    for (int before = most; count > before && !most.compare_exchange_weak(before, count);) continue;
    furthest = std::max<uint64_t>(furthest, offset);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    --now;
    return absl::OkStatus();
  };
  const auto source = *OpenSource(kName, {.read_ahead = uint64_t{4} << 20});
  AlignedBuffer buffer(4096);
  EXPECT_EQ(*source->Read(buffer.data(), 4096), 4096u);
  EXPECT_EQ(furthest, 0u) << "nothing is read ahead before it was asked for";
  EXPECT_EQ(ReadAll(*source).size(), 30'000'000u - 4096);
  EXPECT_GT(most, 1);
  EXPECT_LE(most, 3) << "parts of 1 MiB: three ahead of the one in use";
}

TEST(ObjectSourceTest, Read_APartThatFails_FailsInItsPlace) {
  MemoryStores stores;
  const std::string text = Text(10'000'000);
  stores.Put(kName, text);
  stores.before_read = [](const std::string&, uint64_t offset) {
    return offset > 5'000'000 ? MakeError(Reason::kStorageError, "it was planted") : absl::OkStatus();
  };
  absl::Status error;
  const std::string read = ReadAll(**OpenSource(kName, {.read_ahead = uint64_t{4} << 20}), &error);
  EXPECT_TRUE(HasReason(error, Reason::kStorageError)) << error;
  EXPECT_GT(read.size(), 4'000'000u);
  EXPECT_EQ(read, text.substr(0, read.size()));
}

TEST(ObjectSourceTest, Read_AnObjectThatIsReplacedMeanwhile_IsAnErrorAndNoMixture) {
  MemoryStores stores;
  const std::string text = Text(10'000'000);
  stores.Put(kName, text);
  std::atomic<int> reads = 0;
  stores.before_read = [&](const std::string&, uint64_t) {
    if (++reads == 4) stores.Put(kName, std::string(10'000'000, 'x'));
    return absl::OkStatus();
  };
  absl::Status error;
  const std::string read = ReadAll(**OpenSource(kName, {.read_ahead = uint64_t{4} << 20}), &error);
  EXPECT_TRUE(HasReason(error, Reason::kInputUnreadable)) << error;
  EXPECT_EQ(read, text.substr(0, read.size()));
  EXPECT_TRUE(HasReason(OpenSource(kName, {}).status(), Reason::kInputUnreadable)) << "nor in another pass";
}

TEST(ObjectSourceTest, Read_WhenStopped_IsInterrupted) {
  MemoryStores stores;
  stores.Put(kName, Text(10'000'000));
  std::atomic<bool> stop = false;
  const auto source = *OpenSource(kName, {.stop = &stop});
  AlignedBuffer buffer(4096);
  ASSERT_TRUE(source->Read(buffer.data(), 4096).ok());
  stop = true;
  EXPECT_TRUE(HasReason(source->Read(buffer.data(), 4096).status(), Reason::kInterrupted));
}

TEST(ObjectSourceTest, Open_CompressedOrMissing) {
  MemoryStores stores;
  // printf 'one\ntwo\n' | gzip -n
  const std::string gzip(
      "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xcb\xcf\x4b\xe5\x2a\x29\xcf\xe7\x02\x00\xe6\x0b\xba\x12\x08\x00"
      "\x00\x00",
      28);
  stores.Put("s3://bucket/text.gz", gzip);
  absl::Status error;
  const std::string text = ReadAll(**OpenSource("s3://bucket/text.gz", {}), &error);
  EXPECT_TRUE(error.ok()) << error;
  EXPECT_EQ(text, "one\ntwo\n");
  EXPECT_EQ(ReadAll(**OpenPlainSource("s3://bucket/text.gz", 0, UINT64_MAX, {})), gzip);
  const absl::Status missing = OpenSource("s3://bucket/none", {}).status();
  EXPECT_TRUE(HasReason(missing, Reason::kInputUnreadable)) << missing;
}

}  // namespace
}  // namespace cairn::corpus
