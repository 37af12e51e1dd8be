#include "store/repair/repair.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/format/checkpoint_path.h"
#include "common/format/safetensors_header.h"
#include "common/format/testing/newer_outcome.h"
#include "common/status/reason.h"
#include "store/posix/posix_storage.h"
#include "store/read/checkpoint_store.h"
#include "store/storage/root_lock.h"

namespace cairn {
namespace {

constexpr int64_t kStep = 12;

absl::Time ChangeTime(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 ? absl::TimeFromTimespec(info.st_ctim) : absl::InfinitePast();
}

// The step is demo@12: each of two ranks has half of "w", a flat piece of "f" and an object of its own; one object is
// shared.
class RepairTest : public testing::Test {
 protected:
  RepairTest() {
    root_ = testing::TempDir() + "/repair-XXXXXX";
    EXPECT_NE(mkdtemp(root_.data()), nullptr);
    storage_ = *PosixStorage::Open(root_, false);
    EXPECT_TRUE(storage_->MakeDirectories(AttemptDirectory("demo", kStep, 1)).ok());
  }
  ~RepairTest() override { std::filesystem::remove_all(root_); }

  static StoredItem Half(const std::string& name, int rank) {
    return {.name = name, .dtype = DType::kFloat32, .global_shape = {8, 4}, .box = {{int64_t{4} * rank, 0}, {4, 4}}};
  }
  static StoredItem Object(const std::string& name, std::optional<int> rank) {
    return {.name = name,
            .dtype = DType::kUint8,
            .global_shape = {4096},
            .box = {{0}, {4096}},
            .object = true,
            .object_rank = rank};
  }
  std::string Path(const std::string& file) const {
    return absl::StrCat(root_, "/", AttemptDirectory("demo", kStep, 1), "/", file, ".safetensors");
  }

  // Writes a bin and adds its file to the manifest.
  void WriteBin(int rank, const std::vector<StoredItem>& items, const BinIdentity& identity) {
    std::vector<ItemChecksums> checksums;
    std::string data;
    for (const StoredItem& item : items) {
      std::string bytes(item.bytes(), static_cast<char>('a' + rank));
      if (item.object) bytes.replace(100, 3996, 3996, '\0');
      ItemChecksums one{.crc32c = Crc32c(bytes.data(), bytes.size())};
      one.blocks = {one.crc32c};
      one.object_bytes = item.object ? 100 : 0;
      checksums.push_back(one);
      data += bytes;
    }
    const std::string header =
        RenderHeader(items, checksums, identity, rank == 0 ? AliasList{{"tied", "w"}} : AliasList());
    std::ofstream(Path(BinName(rank, 0)), std::ios::binary) << header << data;
  }
  void WriteBins(int ranks = 2, uint32_t files = 2) {
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<StoredItem> items = {Half("w", rank), Object("rng", rank)};
      StoredItem flat = {.name = "f", .dtype = DType::kFloat32, .global_shape = {2, 3}, .box = {{0, 0}, {2, 3}}};
      flat.flat = rank == 0 ? FlatRange{0, 2} : FlatRange{2, 6};
      items.push_back(flat);
      if (rank == 0) items.push_back(Object("args", std::nullopt));
      WriteBin(rank, items, {"demo", kStep, 1, rank, 2, files});
    }
  }
  // Rewrites a bin as an earlier version wrote it, which did not say whose a bin is.
  void ForgetIdentity(int rank) {
    const std::string path = Path(BinName(rank, 0));
    std::ifstream in(path, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    const size_t begin = bytes.find(",\\\"saved\\\":"), end = bytes.find("\",\"format\"", begin);
    ASSERT_NE(end, std::string::npos);
    // "}" closes the metadata; JSON allows the blanks behind it.
    bytes.replace(begin, end - begin, "}" + std::string(end - begin - 1, ' '));
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }
  void PutOutcome(std::string bytes, size_t flipped) {
    bytes[flipped] = static_cast<char>(bytes[flipped] ^ 1);
    ASSERT_TRUE(storage_->PutIfAbsent(OutcomePath("demo", kStep, 1), bytes).ok());
  }
  // Damages the head of the manifest, whose record can still be read.
  void DamageManifest() {
    Manifest manifest;
    manifest.job = "demo";
    manifest.step = kStep;
    manifest.attempt = 1;
    manifest.world_size = 2;
    PutOutcome(EncodeOutcome(manifest), 20);
  }
  void DamageAbortRecord() {
    PutOutcome(EncodeOutcome(AbortRecord{.job = "demo", .step = kStep, .attempt = 1, .reason = "RANK_LATE"}), 20);
  }
  absl::Status Repair(bool assume_committed = false) {
    report_ = RepairReport();
    RepairOptions options;
    options.assume_committed = assume_committed;
    return RepairCheckpoint(*storage_, "demo", kStep, options, report_);
  }
  bool IsRepaired() const { return storage_->Exists(RepairedPath("demo", kStep, 1)); }

  std::string root_;
  std::unique_ptr<PosixStorage> storage_;
  RepairReport report_;
};

TEST_F(RepairTest, Repair_DamagedManifest_IsMadeAnewFromTheBins) {
  WriteBins();
  DamageManifest();
  ASSERT_TRUE(Repair().ok()) << Repair();
  EXPECT_TRUE(report_.repaired);
  const auto manifest = CheckpointStore(*storage_).ReadManifest("demo", std::nullopt);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(*manifest, report_.manifest);
  EXPECT_EQ(manifest->world_size, 2u);
  EXPECT_EQ(manifest->attempt, 1u);
  ASSERT_EQ(manifest->tensors.size(), 2u);
  EXPECT_EQ(manifest->tensors[1].name, "w");
  EXPECT_EQ(manifest->tensors[1].shard_count, 2u);
  EXPECT_EQ(manifest->box_of(manifest->shards.back()), (Box{{4, 0}, {4, 4}}));
  EXPECT_EQ(manifest->flat_range_of(manifest->shards[1]), (FlatRange{2, 6}));
  EXPECT_EQ(manifest->aliases, (AliasList{{"tied", "w"}}));
  ASSERT_EQ(manifest->objects.size(), 3u);
  EXPECT_EQ(manifest->objects[0].name, "args");
  EXPECT_FALSE(manifest->objects[0].rank.has_value());
  EXPECT_EQ(manifest->objects[2].rank, 1);
  EXPECT_EQ(manifest->objects[2].bytes, 100u);
  EXPECT_TRUE(VerifyCheckpoint(*storage_, *manifest, {}).faults.empty());
  // A second repair has nothing to do.
  ASSERT_TRUE(Repair().ok());
  EXPECT_FALSE(report_.repaired);
  EXPECT_EQ(report_.manifest, *manifest);
}

TEST_F(RepairTest, Repair_AnEarlierOneWasKilled_ItsTemporaryFileGoes) {
  WriteBins();
  DamageManifest();
  const std::string left = root_ + "/" + StepDirectory("demo", kStep) + "/.tmp-0123456789abcdef";
  std::ofstream(left) << "half";
  // It counts as an earlier one's if the clock of the file system has ticked since.
  const std::string later = root_ + "/later";
  do std::ofstream(later) << "x";
  while (ChangeTime(later) <= ChangeTime(left));
  std::filesystem::remove(later);
  ASSERT_TRUE(Repair().ok()) << Repair();
  EXPECT_FALSE(std::filesystem::exists(left));
}

TEST_F(RepairTest, Repair_ManifestIsValidButAFileIsNot_SaysSo) {
  WriteBins();
  DamageManifest();
  ASSERT_TRUE(Repair().ok()) << Repair();
  std::filesystem::resize_file(Path(BinName(1, 0)), 4096);
  const absl::Status damaged = Repair();
  EXPECT_TRUE(absl::IsDataLoss(damaged)) << damaged;
  EXPECT_FALSE(report_.repaired);
}

// A coordinator that serves the root is in nobody's way: nothing will be written.
TEST_F(RepairTest, Repair_ServedRootAndManifestReads_VerifiesTheFilesAllTheSame) {
  WriteBins();
  DamageManifest();
  ASSERT_TRUE(Repair().ok()) << Repair();
  std::filesystem::rename(root_ + "/" + RepairedPath("demo", kStep, 1), root_ + "/" + OutcomePath("demo", kStep, 1));
  const auto lock = storage_->TakeRoot();
  ASSERT_TRUE(lock.ok());
  EXPECT_TRUE(Repair().ok()) << Repair();
  EXPECT_FALSE(report_.repaired);
  std::filesystem::resize_file(Path(BinName(1, 0)), 4096);
  const absl::Status damaged = Repair();
  EXPECT_TRUE(absl::IsDataLoss(damaged)) << damaged;
}

// Else prune would take what the training builds on for superseded.
TEST_F(RepairTest, Repair_StepBelowALaterOneOfItsLine_IsNotSuperseded) {
  WriteBins();
  DamageManifest();
  const auto put = [&](int64_t step, const Lineage& lineage) {
    Manifest other;
    other.job = "demo";
    other.step = step;
    other.attempt = 1;
    other.world_size = 1;
    other.lineage = lineage;
    ASSERT_TRUE(storage_->MakeDirectories(AttemptDirectory("demo", step, 1)).ok());
    ASSERT_TRUE(storage_->PutIfAbsent(OutcomePath("demo", step, 1), EncodeOutcome(other)).ok());
  };
  put(kStep - 2, {.line = 0, .sequence = 1});
  put(kStep - 1, {.line = 5, .continues_step = kStep - 2, .parent_line = 0, .sequence = 2});
  put(kStep + 1, {.line = 5, .continues_step = kStep - 2, .parent_line = 0, .sequence = 4});
  ASSERT_TRUE(Repair().ok()) << Repair();
  const auto steps = CheckpointStore(*storage_).ReadJob("demo");
  ASSERT_TRUE(steps.ok());
  EXPECT_TRUE(LineageOf(*steps).superseded().empty());
  EXPECT_EQ(LineageOf(*steps).latest(), kStep + 1);
}

// The earlier repair may have been killed between the manifest's name and its fsync.
TEST_F(RepairTest, Repair_AlreadyRepaired_IsMadeDurableBeforeItIsTold) {
  WriteBins();
  DamageManifest();
  ASSERT_TRUE(Repair().ok()) << Repair();
  const std::string directory = absl::StrCat(root_, "/", StepDirectory("demo", kStep));
  const std::filesystem::file_time_type before{};
  std::filesystem::last_write_time(directory, before);
  ASSERT_TRUE(Repair().ok());
  // An fsync of a directory that nobody has changed since proves nothing.
  EXPECT_NE(std::filesystem::last_write_time(directory), before);
}

TEST_F(RepairTest, Repair_DamagedAbortRecord_IsNoCommit) {
  WriteBins();
  DamageAbortRecord();
  const absl::Status refused = Repair();
  EXPECT_TRUE(HasReason(refused, Reason::kCommitUnproven)) << refused;
  EXPECT_NE(std::string(refused.message()).find("0001.verdict"), std::string::npos);
  EXPECT_FALSE(IsRepaired());
  EXPECT_TRUE(Repair(/*assume_committed=*/true).ok());
  EXPECT_TRUE(IsRepaired());
}

TEST_F(RepairTest, Repair_UnreadableOutcome_ProvesNothing) {
  WriteBins();
  std::filesystem::create_symlink("elsewhere", root_ + "/" + OutcomePath("demo", kStep, 1));
  EXPECT_TRUE(HasReason(Repair(), Reason::kCommitUnproven)) << Repair();
  EXPECT_TRUE(Repair(true).ok()) << Repair(true);
  EXPECT_EQ(CheckpointStore(*storage_).ReadManifest("demo", kStep)->step, kStep);
}

TEST_F(RepairTest, Repair_WhatWasNeverCommitted_IsNotRepaired) {
  WriteBins();
  EXPECT_TRUE(HasReason(Repair(true), Reason::kNotCommitted)) << Repair(true);
  ASSERT_TRUE(storage_
                  ->PutIfAbsent(OutcomePath("demo", kStep, 1),
                                EncodeOutcome(AbortRecord{.job = "demo", .step = kStep, .attempt = 1}))
                  .ok());
  EXPECT_TRUE(HasReason(Repair(true), Reason::kNotCommitted)) << Repair(true);
  EXPECT_FALSE(IsRepaired());
}

TEST_F(RepairTest, Repair_ServedRoot_IsRefused) {
  WriteBins();
  DamageManifest();
  const auto lock = storage_->TakeRoot();
  ASSERT_TRUE(lock.ok());
  EXPECT_TRUE(HasReason(Repair(), Reason::kRootInUse)) << Repair();
  EXPECT_FALSE(IsRepaired());
}

TEST_F(RepairTest, Repair_NewerVersionsOutcome_IsNotOverruled) {
  WriteBins();
  Manifest manifest;
  manifest.job = "demo";
  manifest.step = kStep;
  manifest.attempt = 1;
  const std::string bytes = OfVersion(EncodeOutcome(manifest), 2);
  ASSERT_TRUE(storage_->PutIfAbsent(OutcomePath("demo", kStep, 1), bytes).ok());
  EXPECT_TRUE(HasReason(Repair(true), Reason::kFormatTooNew)) << Repair(true);
}

TEST_F(RepairTest, Repair_FlippedBitOfTheVersion_IsDamage) {
  WriteBins();
  Manifest manifest;
  manifest.job = "demo";
  manifest.step = kStep;
  manifest.attempt = 1;
  manifest.world_size = 2;
  PutOutcome(EncodeOutcome(manifest), 9);
  EXPECT_TRUE(Repair().ok()) << Repair();
  EXPECT_TRUE(IsRepaired());
}

// Every planted fault is found, and then nothing is put.
TEST_F(RepairTest, Repair_FaultsOfTheBins_AreFound) {
  DamageManifest();
  const auto flip = [&](const std::string& file, int64_t at) {
    std::fstream stream(Path(file), std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(at, at < 0 ? std::ios::end : std::ios::beg);
    const int byte = stream.get();
    stream.seekp(at, at < 0 ? std::ios::end : std::ios::beg);
    stream.put(static_cast<char>(byte ^ 0x10));
  };
  const std::vector<std::tuple<const char*, std::function<void()>, Reason>> faults = {
      {"missing bin", [&] { std::filesystem::remove(Path("rank00001-bin00")); }, Reason::kFileMissing},
      {"no bin",
       [&] {
         for (const char* bin : {"rank00000-bin00", "rank00001-bin00"}) std::filesystem::remove(Path(bin));
       },
       Reason::kFileMissing},
      {"flipped byte of data", [&] { flip("rank00001-bin00", -4100); }, Reason::kChecksumMismatch},
      {"flipped byte of a header", [&] { flip("rank00000-bin00", 300); }, Reason::kBadSafetensors},
      {"short bin", [&] { std::filesystem::resize_file(Path("rank00001-bin00"), 8000); }, Reason::kFileTruncated},
      {"bin of another step", [&] { WriteBin(1, {Half("w", 1)}, {"demo", kStep + 1, 1, 1, 2, 2}); },
       Reason::kBadSafetensors},
      {"bin of another rank", [&] { std::filesystem::rename(Path("rank00001-bin00"), Path("rank00000-bin01")); },
       Reason::kBadSafetensors},
      {"gap", [&] { WriteBin(1, {Half("v", 1)}, {"demo", kStep, 1, 1, 2, 2}); }, Reason::kShardGap},
      {"shard twice", [&] { WriteBin(1, {Half("w", 0)}, {"demo", kStep, 1, 1, 2, 2}); }, Reason::kBadSafetensors},
      {"bin of an old version among new ones", [&] { ForgetIdentity(1); }, Reason::kBadSafetensors},
  };
  for (const auto& [name, plant, reason] : faults) {
    for (const auto& entry : std::filesystem::directory_iterator(root_ + "/" + AttemptDirectory("demo", kStep, 1))) {
      std::filesystem::remove(entry.path());
    }
    WriteBins();
    plant();
    const absl::Status status = Repair();
    EXPECT_TRUE(HasReason(status, reason)) << name << ": " << status;
    EXPECT_FALSE(IsRepaired()) << name;
  }
}

TEST_F(RepairTest, Repair_BinsOfEarlierVersions_SayWhatTheyCannot) {
  WriteBins();
  ForgetIdentity(0);
  ForgetIdentity(1);
  DamageManifest();
  ASSERT_TRUE(Repair().ok()) << Repair();
  EXPECT_EQ(report_.manifest.world_size, 2u);
  EXPECT_TRUE(report_.manifest.aliases.empty());
  EXPECT_NE(std::find(report_.unknown.begin(), report_.unknown.end(), "aliases"), report_.unknown.end());
}

}  // namespace
}  // namespace cairn
