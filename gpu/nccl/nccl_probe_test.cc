// Probes by a worker in a process of its own, with the stand-ins for CUDA's driver and NCCL, which have two devices.
#include "gpu/nccl/nccl_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

namespace cairn {
namespace {

using testing::HasSubstr;
using testing::Not;
using v1::NcclSupport;

std::string Absolute(const char* path) { return std::filesystem::absolute(path).string(); }

class NcclProbeTest : public testing::Test {
 protected:
  NcclProbeTest() {
    options_.program = Absolute("gpu/share/cairn-gpu-worker");
    options_.libcuda = Absolute("tests/testing/stand_in/cuda/libcairn_stand_in_cuda.so");
    options_.libnccl = Absolute("tests/testing/stand_in/nccl/libcairn_stand_in_nccl.so");
    support_.set_policy(NcclSupport::AUTO);
    support_.set_saves_policy(NcclSupport::NEVER);
  }
  // Returns the log.
  std::string Probe(uint32_t device) {
    testing::internal::CaptureStderr();
    ProbeNccl(options_, device, absl::Seconds(60), support_);
    return testing::internal::GetCapturedStderr();
  }

  WorkerProcessOptions options_;
  NcclSupport support_;
};

TEST_F(NcclProbeTest, Probe_TheLastDevice_HasAVersionAndIsNamedInTheLog) {
  EXPECT_THAT(Probe(1), HasSubstr(" info event=nccl available=1 device=1 "));
  EXPECT_EQ(support_.version(), 22809);
  EXPECT_EQ(support_.error(), "");
}

TEST_F(NcclProbeTest, Probe_ANumberWithoutADevice_WarnsAndSaysHowManyThereAre) {
  const std::string log = Probe(7);
  EXPECT_EQ(support_.version(), 0);
  EXPECT_EQ(support_.error(), "--nccl-device=7 (or LOCAL_RANK), but the agent sees 2 GPUs");
  EXPECT_THAT(log, HasSubstr(" warn event=nccl available=0 device=7 why=\"--nccl-device=7 (or LOCAL_RANK), but "));
  EXPECT_THAT(log, HasSubstr("go over gRPC"));
}

TEST_F(NcclProbeTest, Probe_NoLibrary_IsAWarningOnlyIfNcclIsRequired) {
  options_.libnccl = "/nowhere/libnccl.so.2";
  EXPECT_THAT(Probe(0), HasSubstr(" info event=nccl available=0 "));
  EXPECT_THAT(support_.error(), HasSubstr("/nowhere/libnccl.so.2"));
  support_.set_policy(NcclSupport::REQUIRE);
  const std::string log = Probe(0);
  EXPECT_THAT(log, HasSubstr(" warn event=nccl available=0 "));
  EXPECT_THAT(log, HasSubstr("end with NCCL_UNAVAILABLE (--nccl=require)"));
  EXPECT_THAT(log, Not(HasSubstr("--nccl-saves")));
  support_.set_policy(NcclSupport::AUTO);
  support_.set_saves_policy(NcclSupport::REQUIRE);
  EXPECT_THAT(Probe(0), HasSubstr("NCCL_UNAVAILABLE (--nccl-saves=require)"));
}

}  // namespace
}  // namespace cairn
