// Tests that bins are written while their trainer still stages.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "agent/staging/shared_memory.h"
#include "agent/testing/layouts.h"
#include "agent/writer/bin_writer.h"
#include "common/base/mutex.h"
#include "common/base/random_id.h"
#include "common/status/reason.h"
#include "store/posix/posix_storage.h"
#include "store/write/attempt_owner.h"

namespace cairn {
namespace {

using testing::MakeLayout;
using testing::MakeWritePlan;
using testing::Object;
using testing::Whole;

constexpr uint64_t kChunk = 65536;

// Two files: 1 MB and an object of 8 KB, then 2 MB. A trainer fills the slab with the bytes of `Byte`, step by step.
class EarlyWritingTest : public ::testing::Test {
 protected:
  EarlyWritingTest() {
    auto image = MakeSaveImage(layout_, MakeWritePlan(*layout_, 0, {{0, 2}, {1}}, "p1"));
    EXPECT_TRUE(image.ok()) << image.status();
    image_ = *image;
    slab_ = *SharedMemory::Create("test", image_->slab_bytes);
    std::memset(slab_->data(), 0x55, slab_->bytes());  // of the save before
  }
  ~EarlyWritingTest() override { std::filesystem::remove_all(root_); }

  // What the trainer stages at this offset. 0 would be what a file has where nothing was written.
  static char Byte(uint64_t offset) { return static_cast<char>(1 + offset % 251); }

  void Start() {
    PosixCalls calls;
    calls.pwrite = [this](int fd, const void* bytes, size_t size, off_t offset) {
      return Write(fd, bytes, size, offset);
    };
    auto storage = PosixStorage::Open(root_, true, std::move(calls));
    ASSERT_TRUE(storage.ok()) << storage.status();
    storage_ = *std::move(storage);
    ASSERT_TRUE(MakeAttemptDirectory(*storage_, "demo/7/1", 0xabc, "demo@7 attempt 1").ok());
    job_.directory = "demo/7/1";
    job_.nonce = 0xabc;
    job_.staged = job_.target = image_;
    job_.staging = &staging_;
    job_.slab = slab_->data();
    job_.job = "demo";
    job_.step = 7;
    job_.attempt = 1;
    writer_ = std::thread(
        [this] { outcome_ = WriteBins(*storage_, job_, {.io_threads = 2, .chunk_bytes = kChunk}, stop_, done_); });
  }

  // The trainer copies up to this offset of the slab, and says so.
  void Stage(uint64_t until) {
    for (; copied_ < until; ++copied_) slab_->data()[copied_] = Byte(copied_);
    mark_ = until;
  }

  // Waits until so many bytes of data are written.
  void AwaitDone(uint64_t bytes) {
    MutexLock lock(mutex_);
    while (written_ < bytes) changed_.Wait(mutex_);
  }
  uint64_t written() {
    MutexLock lock(mutex_);
    return written_;
  }

  ssize_t Write(int fd, const void* bytes, size_t size, off_t offset) {
    if (failure_ != 0) {
      errno = failure_;
      return -1;
    }
    const ssize_t result = ::pwrite(fd, bytes, size, offset);
    if (offset > 0) {  // the header comes last, and is none of the trainer's
      const char* begin = static_cast<const char*>(bytes);
      if (!ended_) {  // then the rests of objects are zeroed
        const uint64_t at = static_cast<uint64_t>(begin - slab_->data());
        beyond_mark_ = beyond_mark_ || at + size > mark_;
        for (uint64_t i = 0; i < size; ++i) early_bad_ = early_bad_ || begin[i] != Byte(at + i);
      }
      MutexLock lock(mutex_);
      written_ += size;
      changed_.NotifyAll();
    }
    return result;
  }

  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    const auto entries = storage_->List("demo/7/1");
    if (!entries.ok()) return {std::string(entries.status().message())};
    for (const Storage::Entry& entry : *entries) {
      if (entry.name != ".owner") names.push_back(entry.name);
    }
    return names;
  }

  const RankLayoutPtr layout_ =
      MakeLayout({Whole("a", DType::kUint8, {1 << 20}), Whole("b", DType::kUint8, {2 << 20})}, {Object("o", 8192)});
  SaveImagePtr image_;
  std::shared_ptr<SharedMemory> slab_;
  uint64_t copied_ = 0;
  std::atomic<uint64_t> mark_ = 0;
  std::atomic<bool> ended_ = false;
  std::atomic<bool> early_bad_ = false;    // something else was written than what was staged
  std::atomic<bool> beyond_mark_ = false;  // something was written that was not staged
  std::atomic<int> failure_ = 0;
  StagingProgress staging_{[this] { return mark_.load(); }};
  const std::string root_ = std::string(::testing::TempDir()) + "/early-" + RandomToken(6);
  std::unique_ptr<PosixStorage> storage_;
  BinWriteJob job_;
  std::atomic<bool> stop_ = false;
  std::atomic<uint64_t> done_ = 0;
  std::thread writer_;
  absl::StatusOr<BinWriteOutcome> outcome_ = absl::UnknownError("not ended");
  Mutex mutex_;
  CondVar changed_;
  uint64_t written_ ABSL_GUARDED_BY(mutex_) = 0;
};

TEST_F(EarlyWritingTest, WriteBins_WhileTheTrainerStages_WritesWhatIsThereAndTheRestAfterTheEnd) {
  Start();
  const ImageFile& first = image_->file[0];
  const uint64_t data = first.slab_offset + first.header_bytes;
  Stage(data + 5 * kChunk);
  AwaitDone(5 * kChunk);
  Stage(data + 9 * kChunk + 17);
  AwaitDone(9 * kChunk);
  EXPECT_FALSE(beyond_mark_);
  Stage(image_->slab_bytes);
  // The last chunks of the first file have the object: only the end of staging tells how long it is.
  const uint64_t held = (first.data_bytes - 1) / kChunk * kChunk;
  AwaitDone(held);
  for (const std::string& name : Files()) EXPECT_FALSE(absl::EndsWith(name, ".safetensors")) << "before all is staged";
  ended_ = true;
  staging_.End({100});
  writer_.join();
  ASSERT_TRUE(outcome_.ok()) << outcome_.status();
  EXPECT_FALSE(early_bad_);
  EXPECT_EQ(done_, image_->file_bytes);
  EXPECT_EQ(Files().size(), 2u);
  for (size_t f = 0; f < image_->file.size(); ++f) {
    const ImageFile& file = image_->file[f];
    std::ifstream stream(root_ + "/demo/7/1/" + file.name + ".safetensors", std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(stream), {}};
    ASSERT_EQ(bytes.size(), file.bytes());
    EXPECT_TRUE(bytes == std::string(slab_->data() + file.slab_offset, file.bytes())) << "the slab is the file's image";
    uint64_t at = file.header_bytes;
    for (size_t i = 0; i < file.item.size(); ++i) {
      const StoredItem& item = image_->ItemAt(file.item[i]);
      std::string content;
      for (uint64_t k = 0; k < item.bytes(); ++k) {
        content += item.object && k >= 100 ? '\0' : Byte(file.slab_offset + at + k);
      }
      EXPECT_TRUE(bytes.substr(at, item.bytes()) == content) << item.name;
      EXPECT_EQ(outcome_->result.files(static_cast<int>(f)).item_checksums(static_cast<int>(i)),
                testing::SlowCrc32c(content));
      at += item.bytes();
    }
  }
}

TEST_F(EarlyWritingTest, WriteBins_OfATrainerThatNeverSaysHowFarItIs_BeginsAtTheEnd) {
  Start();
  for (uint64_t i = 0; i < slab_->bytes(); ++i) slab_->data()[i] = Byte(i);
  EXPECT_EQ(written(), 0u);
  ended_ = true;
  staging_.End({8192});
  writer_.join();
  EXPECT_TRUE(outcome_.ok()) << outcome_.status();
}

TEST_F(EarlyWritingTest, WriteBins_StoppedWhileItWaits_EndsAndLeavesNoFile) {
  Start();
  Stage(image_->file[0].slab_offset + image_->file[0].header_bytes + 3 * kChunk);
  AwaitDone(3 * kChunk);
  stop_ = true;
  writer_.join();
  EXPECT_TRUE(HasReason(outcome_.status(), Reason::kSaveCancelled)) << outcome_.status();
  EXPECT_TRUE(Files().empty());
}

TEST_F(EarlyWritingTest, WriteBins_TheDiskIsFullWhileTheTrainerStages_EndsThough) {
  Start();
  const uint64_t data = image_->file[0].slab_offset + image_->file[0].header_bytes;
  Stage(data + 2 * kChunk);
  AwaitDone(2 * kChunk);
  failure_ = ENOSPC;
  Stage(data + 3 * kChunk);
  writer_.join();  // though the trainer has not staged the rest
  EXPECT_TRUE(HasReason(outcome_.status(), Reason::kNoSpace)) << outcome_.status();
  EXPECT_TRUE(Files().empty());
}

}  // namespace
}  // namespace cairn
