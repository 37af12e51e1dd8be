#include "cli/commands/diagnosis.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "common/base/version.h"
#include "common/status/reason.h"

namespace cairn::cli {
namespace {

using Level = Finding::Level;

constexpr uint64_t kGiB = uint64_t{1} << 30;

TEST(DiagnosisTest, JudgeHugePages_KernelGivesNone_SaysHowToChangeIt) {
  EXPECT_EQ(JudgeHugePages({.by_itself = true, .set_aside = 0}).level, Finding::Level::kOk);
  EXPECT_NE(JudgeHugePages({.by_itself = false, .set_aside = 512}).text.find("are set aside"), std::string::npos);
  const Finding none = JudgeHugePages({});
  EXPECT_EQ(none.level, Finding::Level::kNote);
  EXPECT_NE(none.next.find("shmem_enabled"), std::string::npos);
}

TEST(DiagnosisTest, Root_ProbeFails_IsAFaultWithItsNextAction) {
  EXPECT_EQ(JudgeRoot("/ckpt", absl::OkStatus()).level, Level::kOk);
  const Finding fault = JudgeRoot("/ckpt", MakeError(Reason::kNoAtomicCreate, "link is not atomic"));
  EXPECT_EQ(fault.level, Level::kFault);
  EXPECT_FALSE(fault.next.empty());
}

TEST(DiagnosisTest, Uploads_OlderThanAnySave_Warn) {
  const absl::Time now = absl::FromUnixSeconds(1'000'000'000);
  EXPECT_EQ(JudgeUploads({}, now).level, Level::kOk);
  EXPECT_EQ(JudgeUploads({2, now - absl::Hours(1)}, now).level, Level::kOk) << "a save may be under way";
  EXPECT_EQ(JudgeUploads({2, now - absl::Hours(30)}, now).level, Level::kWarning);
}

TEST(DiagnosisTest, FreeSpace_AgainstACheckpoint_FaultsIfNotOneMoreFits) {
  EXPECT_EQ(JudgeFreeSpace({10 * kGiB}, kGiB).level, Level::kOk);
  EXPECT_EQ(JudgeFreeSpace({2 * kGiB}, kGiB).level, Level::kWarning);
  EXPECT_EQ(JudgeFreeSpace({kGiB - 1}, kGiB).level, Level::kFault);
  EXPECT_EQ(JudgeFreeSpace({kGiB}, 0).level, Level::kNote);
  EXPECT_EQ(JudgeFreeSpace({10 * kGiB, 5, 1000000}, kGiB).level, Level::kWarning) << "no inodes";
  EXPECT_EQ(JudgeFreeSpace({10 * kGiB, 0, 0}, kGiB).level, Level::kOk) << "they are not counted";
}

TEST(DiagnosisTest, DirectIo_Refused_IsAWarning) {
  EXPECT_EQ(JudgeDirectIo(0).level, Level::kOk);
  EXPECT_EQ(JudgeDirectIo(EINVAL).level, Level::kWarning);
}

TEST(DiagnosisTest, Memory_TightestLimit_Decides) {
  const std::vector<MemoryLimit> limits = {{"machine", 64 * kGiB, 4 * kGiB}, {"memory.max of /pod", 8 * kGiB, kGiB}};
  EXPECT_EQ(JudgeMemory(limits, 4 * kGiB).level, Level::kOk);
  const Finding fault = JudgeMemory(limits, 8 * kGiB);
  EXPECT_EQ(fault.level, Level::kFault);
  EXPECT_NE(fault.text.find("memory.max of /pod"), std::string::npos) << fault.text;
  EXPECT_NE(fault.next.find("1.12 GiB"), std::string::npos) << fault.next;
  EXPECT_EQ(JudgeMemory({{"over", kGiB, 2 * kGiB}}, kGiB).level, Level::kFault) << "more is used than the limit";
  EXPECT_EQ(JudgeMemory(limits, 0).level, Level::kNote);
}

TEST(DiagnosisTest, Clock_OffInEitherDirection_IsTold) {
  EXPECT_EQ(JudgeClock(absl::Seconds(1)).level, Level::kOk);
  EXPECT_EQ(JudgeClock(absl::Seconds(-10)).level, Level::kWarning);
  EXPECT_EQ(JudgeClock(absl::Minutes(5)).level, Level::kFault);
}

TEST(DiagnosisTest, OpenFiles_Few_IsAWarning) {
  EXPECT_EQ(JudgeOpenFiles(1024).level, Level::kWarning);
  EXPECT_EQ(JudgeOpenFiles(65536).level, Level::kOk);
}

TEST(DiagnosisTest, Coordinator_AnotherVersion_IsAWarning) {
  EXPECT_EQ(JudgeCoordinator("a:1", std::string(kVersion)).level, Level::kOk);
  EXPECT_EQ(JudgeCoordinator("a:1", std::string("99.0")).level, Level::kWarning);
  const Finding gone = JudgeCoordinator("a:1", MakeError(Reason::kCoordinatorUnreachable, "no answer"));
  EXPECT_EQ(gone.level, Level::kFault);
}

TEST(DiagnosisTest, GracePeriod_AgainstTheLongestSave_FaultsIfItIsShorter) {
  EXPECT_EQ(JudgeGracePeriod(absl::Seconds(30), absl::Seconds(10)).level, Level::kOk);
  EXPECT_EQ(JudgeGracePeriod(absl::Seconds(30), absl::Seconds(20)).level, Level::kWarning);
  const Finding fault = JudgeGracePeriod(absl::Seconds(30), absl::Seconds(40));
  EXPECT_EQ(fault.level, Level::kFault);
  EXPECT_NE(fault.next.find("2m"), std::string::npos) << fault.next;
  EXPECT_EQ(JudgeGracePeriod(absl::Seconds(30), std::nullopt).level, Level::kNote);
}

TEST(DiagnosisTest, JudgeCheckpoints_NoneIsValid_IsAFault) {
  EXPECT_FALSE(JudgeCheckpoints("demo", 0, 7, "/ckpt").has_value());
  EXPECT_FALSE(JudgeCheckpoints("demo", 0, std::nullopt, "/ckpt").has_value()) << "it has saved nothing";
  const auto older = JudgeCheckpoints("demo", 2, 7, "/ckpt");
  ASSERT_TRUE(older.has_value());
  EXPECT_EQ(older->level, Finding::Level::kWarning);
  EXPECT_EQ(older->text, "job demo: the newest 2 are damaged, so a load takes step 7");
  const auto none = JudgeCheckpoints("demo", 3, std::nullopt, "/my ckpt");
  ASSERT_TRUE(none.has_value());
  EXPECT_EQ(none->level, Finding::Level::kFault);
  EXPECT_EQ(none->text, "job demo has no valid checkpoint: 3 are damaged");
  EXPECT_NE(none->next.find("`cairn list demo --root '/my ckpt' --check`"), std::string::npos) << none->next;
}

TEST(DiagnosisTest, JudgeServedRoot_OnlyTheSameDirectoryIsFine) {
  EXPECT_EQ(JudgeServedRoot("/ckpt", "/mnt/ckpt", true).level, Finding::Level::kOk);
  const Finding other = JudgeServedRoot("/ckpt", "/mnt/ckpt", false);
  EXPECT_EQ(other.level, Finding::Level::kFault);
  EXPECT_NE(other.text.find("/mnt/ckpt"), std::string::npos) << other.text;
  EXPECT_NE(other.next.find("--root /mnt/ckpt"), std::string::npos) << other.next;
  EXPECT_EQ(JudgeServedRoot("/ckpt", "/mnt/ckpt", std::nullopt).level, Finding::Level::kWarning);
}

TEST(DiagnosisTest, JudgeOwnName_WithoutAnAddress_WarnsAndSaysWhatToWrite) {
  EXPECT_EQ(JudgeOwnName({"node3", true}).level, Finding::Level::kOk);
  const Finding finding = JudgeOwnName({"node3", false});
  EXPECT_EQ(finding.level, Finding::Level::kWarning);
  EXPECT_NE(finding.text.find("node3, has no address: `torchrun --standalone` waits"), std::string::npos);
  EXPECT_NE(finding.next.find("\"127.0.1.1 node3\" to /etc/hosts"), std::string::npos);
}

}  // namespace
}  // namespace cairn::cli
