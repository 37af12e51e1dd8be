#include "gpu/copy/probe.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/testing/stand_in/cuda/loaded.h"

namespace cairn {
namespace {

class GpuProbeTest : public testing::Test {
 protected:
  void SetUp() override { gpu_.reset(); }
  void TearDown() override {
    gpu_.reset();
    for (const char* what :
         {"registered_bytes", "allocated_host_bytes", "used_device_bytes", "contexts", "streams", "modules"}) {
      EXPECT_EQ(gpu_.count(what), 0) << what << " was not given back";
    }
  }
  GpuProbe Probe() const { return ProbeGpu(gpu_.path, 1 << 20); }

  const LoadedStandIn& gpu_ = LoadedStandIn::Get();
};

TEST_F(GpuProbeTest, Probe_EverythingWorks_SaysWhatASaveWillDo) {
  const GpuProbe probe = Probe();
  EXPECT_EQ(probe.error, "");
  EXPECT_TRUE(probe.is_stand_in);
  ASSERT_EQ(probe.devices.size(), 2u);
  EXPECT_EQ(probe.devices[1].name, "stand-in 1");
  EXPECT_EQ(probe.devices[0].compute_major, 9);
  EXPECT_TRUE(probe.devices[0].posix_handles && !probe.devices[0].fabric_handles);
  EXPECT_EQ(probe.path, "pinned-slab");
  EXPECT_EQ(probe.no_proof, "");
  EXPECT_GT(probe.pin_seconds_per_gb, 0);
  EXPECT_GT(probe.to_host_gb_per_second, 0);
  const std::string text = TextOf(probe);
  EXPECT_NE(text.find("driver          CUDA 13.0, a stand-in for tests\n"), std::string::npos) << text;
  EXPECT_NE(text.find("save            pinned-slab; overlap= is possible\n"), std::string::npos) << text;
}

TEST_F(GpuProbeTest, Probe_TheSlabCannotBePinned_NamesTheCallAndTheNextPath) {
  gpu_.fail("cuMemHostRegister_v2", 1, cuda::kNotSupported);
  const GpuProbe probe = Probe();
  EXPECT_EQ(probe.path, "pinned-ring");
  EXPECT_EQ(probe.fallback, "cuMemHostRegister: CUDA_ERROR_NOT_SUPPORTED");
}

TEST_F(GpuProbeTest, Probe_NothingCanBePinned_NamesBothCalls) {
  gpu_.set("pinnable_bytes", 0);
  const GpuProbe probe = Probe();
  EXPECT_EQ(probe.path, "pageable");
  EXPECT_EQ(probe.fallback, "cuMemHostRegister: CUDA_ERROR_OUT_OF_MEMORY; cuMemHostAlloc: CUDA_ERROR_OUT_OF_MEMORY");
}

TEST_F(GpuProbeTest, Probe_TheKernelIsRefused_SaysWhy) {
  gpu_.fail("cuModuleLoadData", 1, cuda::kInvalidPtx);
  EXPECT_EQ(Probe().no_proof, "cuModuleLoadData: CUDA_ERROR_INVALID_PTX");
}

TEST_F(GpuProbeTest, Probe_NoDriver_SaysWhichLibrary) {
  const GpuProbe probe = ProbeGpu("/nowhere/libcuda.so.1", 1 << 20);
  EXPECT_NE(probe.error.find("/nowhere/libcuda.so.1"), std::string::npos);
  EXPECT_NE(TextOf(probe).find("arrays on GPUs cannot be saved"), std::string::npos);
}

TEST_F(GpuProbeTest, Probe_NoDevices_HasNoPath) {
  gpu_.set("devices", 0);
  EXPECT_EQ(Probe().path, "");
}

}  // namespace
}  // namespace cairn
