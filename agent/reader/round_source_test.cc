#include "agent/reader/round_source.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agent/testing/layouts.h"
#include "common/base/crc32c.h"
#include "common/base/mutex.h"
#include "common/base/random_id.h"
#include "common/file/unique_fd.h"
#include "common/format/safetensors_header.h"
#include "common/status/reason.h"
#include "store/posix/posix_storage.h"

namespace cairn {
namespace {

constexpr uint64_t kRoundBytes = 5000;
constexpr uint32_t kRounds = 4;

// Something that happens once.
class Event {
 public:
  void Happen() { promise_.set_value(); }
  void Await() { future_.wait(); }
  bool happened() { return future_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }

 private:
  std::promise<void> promise_;
  std::future<void> future_ = promise_.get_future();
};

// Holds what a call of Await was told.
struct Answer {
  Event told;
  absl::StatusOr<RoundBuffer> round = absl::UnknownError("not told");
};

// Ranks 0 and 1 take all rounds of one file, 5000 bytes each.
class RoundSourceTest : public ::testing::Test {
 protected:
  RoundSourceTest() {
    root_ = ::testing::TempDir() + "/source-" + RandomToken(6);
    std::filesystem::create_directories(root_ + "/demo");
    storage_ = *PosixStorage::Open(root_, false);
    const std::vector<StoredItem> items = {testing::Whole("a", DType::kUint8, {kRounds * kRoundBytes})};
    data_ = testing::Pattern("a", kRounds * kRoundBytes);
    const uint32_t crc32c = Crc32c(data_.data(), data_.size());
    const std::vector<ItemChecksums> checksums = {{.crc32c = crc32c, .blocks = {crc32c}}};
    const std::string header = RenderHeader(items, checksums);
    std::ofstream(File(), std::ios::binary) << header << data_;
    auto plan = std::make_shared<v1::ReadPlan>();
    auto* file = plan->add_files();
    file->set_path("bin.safetensors");
    file->set_header_bytes(header.size());
    file->set_file_bytes(header.size() + data_.size());
    file->set_header_crc32c(Crc32c(header.data(), header.size()));
    file->add_item_offsets(header.size());
    file->add_item_sizes(data_.size());
    file->add_item_checksums(crc32c);
    file->add_item_names("a");
    for (uint32_t round = 0; round < kRounds; ++round) {
      auto* planned = plan->add_rounds();
      auto* read = planned->add_reads();
      const uint64_t offset = header.size() + round * kRoundBytes;
      read->set_file_offset(offset);
      read->set_bytes(kRoundBytes);
      read->set_buffer_offset(offset % kReadAlignment);
      planned->set_buffer_bytes(offset % kReadAlignment + kRoundBytes);
      planned->add_consumers(0);
      planned->add_consumers(1);
    }
    plan_ = plan;
    options_.offers.offer = [this](const std::shared_ptr<SharedMemory>&) -> absl::StatusOr<uint64_t> {
      return ++offered_;
    };
    options_.offers.withdraw = [this](uint64_t) { ++withdrawn_; };
    options_.on_progress = [] {};
    options_.on_error = [this](const absl::Status& error) {
      EXPECT_FALSE(failed_.happened()) << "only the first error is told";
      error_ = error;
      failed_.Happen();
    };
  }
  ~RoundSourceTest() override {
    source_.reset();
    std::filesystem::remove_all(root_);
  }

  std::string File() const { return root_ + "/demo/bin.safetensors"; }
  void Start() {
    source_ = std::make_unique<RoundSource>(*storage_, pool_, "demo", plan_, options_);
    ASSERT_TRUE(source_->Start().ok());
  }
  // The rank asks for a round, and has released those below.
  std::shared_ptr<Answer> Await(uint32_t rank, uint32_t round, uint32_t released_below) {
    auto answer = std::make_shared<Answer>();
    call_ = source_->Await(rank, round, released_below, [answer](absl::StatusOr<RoundBuffer> told) {
      answer->round = std::move(told);
      answer->told.Happen();
    });
    return answer;
  }
  void ExpectBytes(const RoundBuffer& buffer, uint32_t round) {
    const uint64_t at = plan_->rounds(static_cast<int>(round)).reads(0).buffer_offset();
    EXPECT_EQ(std::memcmp(buffer.memory->data() + at, data_.data() + round * kRoundBytes, kRoundBytes), 0) << round;
  }

  std::string root_, data_;
  std::unique_ptr<PosixStorage> storage_;
  BufferPool pool_{0, 1};
  ReadPlanPtr plan_;
  RoundSourceOptions options_;
  std::atomic<uint64_t> offered_ = 0, withdrawn_ = 0;
  Event failed_;
  absl::Status error_;
  uint64_t call_ = 0;
  std::unique_ptr<RoundSource> source_;
};

TEST_F(RoundSourceTest, Await_EveryRoundInTurn_GivesItsBytesFromTwoBuffers) {
  Start();
  for (uint32_t round = 0; round < kRounds; ++round) {
    for (uint32_t rank : {0, 1}) {
      const auto answer = Await(rank, round, round);
      answer->told.Await();
      ASSERT_TRUE(answer->round.ok()) << answer->round.status();
      ExpectBytes(*answer->round, round);
    }
  }
  EXPECT_EQ(offered_, 2);
  EXPECT_TRUE(source_->progress().all_read);
  EXPECT_EQ(source_->progress().bytes_done, kRounds * kRoundBytes);
}

TEST_F(RoundSourceTest, Await_AConsumerHoldsTheBuffer_WaitsForItsRelease) {
  Start();
  for (uint32_t rank : {0, 1}) Await(rank, 0, 0)->told.Await();
  const auto answer = Await(0, 2, 2);
  EXPECT_FALSE(answer->told.happened()) << "rank 1 has round 0 still";
  source_->Release(1, 1);
  answer->told.Await();
  ASSERT_TRUE(answer->round.ok()) << answer->round.status();
  ExpectBytes(*answer->round, 2);
}

TEST_F(RoundSourceTest, Await_WhatTheRankCannotHave_IsRefused) {
  Start();
  const auto foreign = Await(7, 0, 0);
  ASSERT_TRUE(foreign->told.happened());
  EXPECT_TRUE(HasReason(foreign->round.status(), Reason::kBadRequest)) << "it takes nothing of this plan";
  const auto beyond = Await(0, kRounds, 0);
  EXPECT_TRUE(HasReason(beyond->round.status(), Reason::kBadRequest)) << "there is no such round";
  Await(0, 1, 0)->told.Await();
  source_->Release(1, 2);
  Await(0, 2, 2)->told.Await();
  const auto gone = Await(0, 0, 0);
  ASSERT_TRUE(gone->told.happened());
  EXPECT_TRUE(HasReason(gone->round.status(), Reason::kBadRequest)) << "its buffer has another round";
}

TEST_F(RoundSourceTest, Forget_ACallThatWaits_IsNeverTold) {
  Start();
  Await(0, 1, 0)->told.Await();
  const auto forgotten = Await(0, 2, 0);
  ASSERT_NE(call_, 0);
  source_->Forget(call_);
  const auto kept = Await(1, 2, 2);
  source_->Release(0, 2);
  kept->told.Await();
  source_->Stop(MakeError(Reason::kInterrupted, "over"));
  EXPECT_FALSE(forgotten->told.happened());
}

TEST_F(RoundSourceTest, Stop_WhileACallWaits_TellsItWhyAndGivesTheBuffersBack) {
  Start();
  Await(0, 1, 0)->told.Await();
  const auto answer = Await(0, 2, 0);
  source_->Stop(MakeError(Reason::kTrainerLost, "given up"));
  ASSERT_TRUE(answer->told.happened());
  EXPECT_TRUE(HasReason(answer->round.status(), Reason::kTrainerLost)) << answer->round.status();
  EXPECT_EQ(withdrawn_, offered_);
  EXPECT_TRUE(HasReason(Await(0, 0, 0)->round.status(), Reason::kTrainerLost)) << "later calls, too";
  EXPECT_FALSE(failed_.happened()) << "it was told, and did not fail";
}

TEST_F(RoundSourceTest, Run_AFileIsMissing_TellsTheErrorToAll) {
  std::filesystem::remove(File());
  Start();
  failed_.Await();
  EXPECT_TRUE(HasReason(error_, Reason::kFileMissing)) << error_;
  const auto answer = Await(0, 0, 0);
  ASSERT_TRUE(answer->told.happened());
  EXPECT_EQ(answer->round.status(), error_);
}

TEST_F(RoundSourceTest, Run_MemoryCannotBeOffered_IsAnError) {
  options_.offers.offer = [](const std::shared_ptr<SharedMemory>&) -> absl::StatusOr<uint64_t> {
    return MakeError(Reason::kMemoryUnsealed, "cannot be sealed");
  };
  Start();
  failed_.Await();
  EXPECT_TRUE(HasReason(error_, Reason::kMemoryUnsealed)) << error_;
}

// Rank 0 alone takes all rounds, and its trainer reads pieces.
class LentRoundsTest : public RoundSourceTest {
 protected:
  LentRoundsTest() {
    auto plan = std::make_shared<v1::ReadPlan>(*plan_);
    for (uint32_t round = 0; round < kRounds; ++round) {
      auto& planned = *plan->mutable_rounds(static_cast<int>(round));
      planned.clear_consumers();
      planned.add_consumers(0);
      auto* copy = plan->add_copies();
      copy->set_round(round);
      copy->set_source_offset(planned.reads(0).buffer_offset());
      copy->set_element_bytes(kRoundBytes);
      copy->set_target_offset(round * kRoundBytes);
    }
    plan_ = plan;
    options_.lends_pieces = true;
    options_.offers.offer_descriptor = [this](UniqueFd descriptor) {
      MutexLock lock(mutex_);
      descriptor_ = std::move(descriptor);
      return ++offered_;
    };
  }

  // Reads a lent round as its trainer does.
  PiecesRead ReadPieces(const LentRound& lent) {
    PiecesRead read;
    for (const RoundPiece& piece : lent.pieces) {
      std::string bytes(piece.bytes(), 'x');
      EXPECT_EQ(ReadAt(lent.files.at(0).begin + piece.offset, bytes), static_cast<ssize_t>(bytes.size()));
      EXPECT_EQ(bytes, data_.substr(piece.target_offset, piece.bytes()));
      read.checksums.push_back(Crc32c(bytes.data(), bytes.size()));
    }
    return read;
  }
  ssize_t ReadAt(uint64_t offset, std::string& bytes) {
    MutexLock lock(mutex_);
    return pread(descriptor_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
  }
  std::shared_ptr<const LentRound> AwaitLent(uint32_t round) {
    const auto answer = Await(0, round, round);
    answer->told.Await();
    EXPECT_TRUE(answer->round.ok()) << answer->round.status();
    return answer->round.ok() ? answer->round->lent : nullptr;
  }
  absl::StatusOr<bool> Check(uint32_t round, PiecesRead read) {
    std::promise<absl::StatusOr<bool>> told;
    source_->Check(round, std::move(read), [&](absl::StatusOr<bool> right) { told.set_value(std::move(right)); });
    return told.get_future().get();
  }

  Mutex mutex_;
  UniqueFd descriptor_ ABSL_GUARDED_BY(mutex_);  // the newest: all are of one file
};

TEST_F(LentRoundsTest, Check_EveryRoundIsReadRight_NoBufferIsUsed) {
  Start();
  for (uint32_t round = 0; round < kRounds; ++round) {
    const auto lent = AwaitLent(round);
    ASSERT_NE(lent, nullptr);
    EXPECT_TRUE(lent->files.at(0).may_wait);
    EXPECT_FALSE(source_->progress().all_read);
    EXPECT_EQ(Check(round, ReadPieces(*lent)).value(), true);
    source_->Release(0, round + 1);
  }
  EXPECT_EQ(withdrawn_, offered_) << "a file's descriptor is open while a lent round needs it";
  EXPECT_TRUE(source_->progress().all_read);
  EXPECT_EQ(source_->progress().bytes_done, kRounds * kRoundBytes);
  // The header, and for each round the whole block, because its checksum is that of the block.
  EXPECT_EQ(source_->progress().storage_bytes, plan_->files(0).header_bytes() + kRounds * kRounds * kRoundBytes);
  EXPECT_EQ(source_->progress().io_path, v1::IO_PATH_CACHED);
  EXPECT_TRUE(HasReason(Check(0, {}).status(), Reason::kBadRequest)) << "it was checked";
}

TEST_F(LentRoundsTest, Check_TheTrainerCannotReadTwoInARow_TheyAndAllLaterRoundsComeInBuffers) {
  Start();
  for (uint32_t round : {0u, 1u}) {
    Await(0, round, 0)->told.Await();
    EXPECT_EQ(Check(round, {.checksums = {}, .refusal = "not there"}).value(), false);
  }
  for (uint32_t round = 0; round < kRounds; ++round) {
    const auto answer = Await(0, round, round);
    answer->told.Await();
    ASSERT_TRUE(answer->round.ok()) << answer->round.status();
    ASSERT_EQ(answer->round->lent, nullptr) << round;
    ExpectBytes(*answer->round, round);
  }
  EXPECT_EQ(source_->progress().bytes_done, kRounds * kRoundBytes);
}

TEST_F(LentRoundsTest, Check_TheTrainerCannotReadOne_LaterOnesAreLent) {
  Start();
  ASSERT_NE(AwaitLent(0), nullptr);
  EXPECT_EQ(Check(0, {.checksums = {}, .refusal = "not there"}).value(), false);
  for (uint32_t round = 1; round < kRounds; ++round) {
    const auto lent = AwaitLent(round);
    ASSERT_NE(lent, nullptr) << round;
    EXPECT_EQ(Check(round, ReadPieces(*lent)).value(), true);
  }
}

TEST_F(LentRoundsTest, Check_TheTrainerHasOtherBytes_TheRoundComesInABuffer) {
  Start();
  PiecesRead read = ReadPieces(*AwaitLent(0));
  read.checksums[0] ^= 1;
  EXPECT_EQ(Check(0, read).value(), false);
  const auto answer = Await(0, 0, 0);
  answer->told.Await();
  ASSERT_TRUE(answer->round.ok()) << answer->round.status();
  ASSERT_EQ(answer->round->lent, nullptr);
  ExpectBytes(*answer->round, 0);
}

TEST_F(LentRoundsTest, Check_TheFileIsDamaged_IsAnErrorThatNamesIt) {
  {
    std::fstream file(File(), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(plan_->files(0).header_bytes() + 3));
    file.put(static_cast<char>(~data_[3]));
  }
  Start();
  const auto lent = AwaitLent(0);
  ASSERT_NE(lent, nullptr);
  PiecesRead read;
  for (const RoundPiece& piece : lent->pieces) {
    std::string bytes(piece.bytes(), 'x');
    ASSERT_GT(ReadAt(piece.offset, bytes), 0);
    read.checksums.push_back(Crc32c(bytes.data(), bytes.size()));
  }
  const absl::StatusOr<bool> right = Check(0, read);
  EXPECT_TRUE(HasReason(right.status(), Reason::kChecksumMismatch)) << right.status();
  EXPECT_EQ(MetadataOf(right.status())["file"], File());
}

TEST_F(LentRoundsTest, Check_AnotherNumberOfChecksums_EndsTheLoad) {
  Start();
  ASSERT_NE(AwaitLent(0), nullptr);
  EXPECT_TRUE(HasReason(Check(0, {.checksums = {1, 2, 3, 4, 5, 6, 7}, .refusal = ""}).status(), Reason::kBadRequest));
}

TEST_F(LentRoundsTest, Lend_AnotherRankTakesTheRound_ItComesInABuffer) {
  auto plan = std::make_shared<v1::ReadPlan>(*plan_);
  plan->mutable_rounds(0)->add_consumers(1);
  plan_ = plan;
  Start();
  EXPECT_EQ(AwaitLent(0), nullptr);
  EXPECT_NE(AwaitLent(1), nullptr) << "each round for itself";
}

TEST_F(LentRoundsTest, Lend_TheTrainerReadsNoPieces_ItComesInABuffer) {
  options_.lends_pieces = false;
  Start();
  EXPECT_EQ(AwaitLent(0), nullptr);
}

TEST_F(LentRoundsTest, Stop_ACheckWaits_IsToldWhy) {
  Start();
  const auto lent = AwaitLent(0);
  source_->Stop(MakeError(Reason::kTrainerLost, "given up"));
  EXPECT_TRUE(HasReason(Check(0, ReadPieces(*lent)).status(), Reason::kTrainerLost));
}

}  // namespace
}  // namespace cairn
