#include "cli/commands/environment.h"

#include <map>

#include "gtest/gtest.h"

namespace cairn::cli {
namespace {

constexpr char kMounts[] =
    "21 1 252:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,errors=remount-ro\n"
    "30 21 0:40 / /mnt rw,noatime - nfs4 storage.example:/export rw,addr=10.0.0.1,username=someone\n"
    "31 30 0:41 / /mnt/my\\040disk rw - fuse.s3fs s3fs rw,user_id=0\n"
    "32 30 0:42 / /mnt/my\\040disk ro - xfs /dev/vdb ro\n"
    "a line without fields\n";

TEST(EnvironmentTest, FileSystemOf_TakesTheNearestMount) {
  EXPECT_EQ(FileSystemOf(kMounts, "/home/a"), "ext4 (rw,relatime) at /");
  EXPECT_EQ(FileSystemOf(kMounts, "/mnt"), "nfs4 (rw,noatime) at /mnt");
  EXPECT_EQ(FileSystemOf(kMounts, "/mnt/a"), "nfs4 (rw,noatime) at /mnt") << "and names no address and no user";
  EXPECT_EQ(FileSystemOf(kMounts, "/mnt2"), "ext4 (rw,relatime) at /") << "a name that only begins alike";
  EXPECT_EQ(FileSystemOf(kMounts, "/mnt/my disk/a"), "xfs (ro) at /mnt/my disk") << "the last mount hides the others";
}

TEST(EnvironmentTest, FileSystemOf_NothingFits_IsEmpty) {
  EXPECT_EQ(FileSystemOf("", "/a"), "");
  EXPECT_EQ(FileSystemOf("30 21 0:40 / /mnt rw - nfs4 a rw", "/home"), "");
}

TEST(EnvironmentTest, GpuDriverOf_FindsTheVersionOfBothKindsOfModule) {
  EXPECT_EQ(GpuDriverOf("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"
                        "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n"),
            "NVIDIA 550.54.15");
  EXPECT_EQ(GpuDriverOf("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  Release Build\n"),
            "NVIDIA 570.133.20");
  EXPECT_EQ(GpuDriverOf("something else\nGCC version:  gcc version 12.2.0\n"), "");
}

TEST(EnvironmentTest, DescribeEnvironment_HasWhatAReportNeeds) {
  std::map<std::string, std::string> texts;
  for (const Finding& finding : DescribeEnvironment("/proc")) {
    EXPECT_EQ(finding.level, Finding::Level::kNote);
    texts[finding.check] = finding.text;
  }
  EXPECT_NE(texts["version"].find("cairn "), std::string::npos);
  EXPECT_NE(texts["system"].find("glibc 2."), std::string::npos) << texts["system"];
  EXPECT_NE(texts["system"].find("Linux "), std::string::npos) << texts["system"];
  EXPECT_EQ(texts["file system"].substr(0, 6), "proc (") << texts["file system"];
  EXPECT_EQ(texts.count("GPU driver") + texts.count("Python"), 2);
  EXPECT_EQ(DescribeEnvironment("").size(), 4) << "no root, no file system";
  EXPECT_EQ(DescribeEnvironment("s3://models/llm").size(), 4);
}

TEST(EnvironmentTest, DescribeEnvironment_AnotherDistributionIsInTheWay_Warns) {
  setenv("CAIRN_REPLACED", "the distribution cairn is installed too", 1);
  const std::vector<Finding> findings = DescribeEnvironment("");
  unsetenv("CAIRN_REPLACED");
  EXPECT_EQ(findings.back().level, Finding::Level::kWarning);
  EXPECT_EQ(findings.back().text, "the distribution cairn is installed too");
}

}  // namespace
}  // namespace cairn::cli
