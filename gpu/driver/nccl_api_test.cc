// Compares our declarations of NCCL's calls with its header. The comparison is done by the compiler.
#include "gpu/driver/nccl_api.h"

#include <gtest/gtest.h>

#include <cstddef>

#if __has_include(<nccl.h>)
#include <nccl.h>

namespace cairn::nccl {
namespace {

static_assert(kSuccess == ncclSuccess);
static_assert(kUnhandledCudaError == ncclUnhandledCudaError);
static_assert(kSystemError == ncclSystemError);
static_assert(kInternalError == ncclInternalError);
static_assert(kInvalidArgument == ncclInvalidArgument);
static_assert(kInvalidUsage == ncclInvalidUsage);
static_assert(kRemoteError == ncclRemoteError);
static_assert(kInProgress == ncclInProgress);
static_assert(kUint8 == ncclUint8);
static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));
static_assert(sizeof(Config) <= sizeof(ncclConfig_t));
static_assert(offsetof(Config, size) == offsetof(ncclConfig_t, size));
static_assert(offsetof(Config, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(Config, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(Config, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(Config, cluster_size) == offsetof(ncclConfig_t, cgaClusterSize));
static_assert(offsetof(Config, min_blocks) == offsetof(ncclConfig_t, minCTAs));
static_assert(offsetof(Config, max_blocks) == offsetof(ncclConfig_t, maxCTAs));
static_assert(offsetof(Config, network) == offsetof(ncclConfig_t, netName));

TEST(NcclApiTest, Config_AsInTheHeader_HasItsMagicAndDefault) {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(Config().magic, theirs.magic);
  EXPECT_EQ(Config().blocking, theirs.blocking);
}

}  // namespace
}  // namespace cairn::nccl

#else

TEST(NcclApiTest, Declarations_WithoutTheLibrarysHeader_AreNotCompared) {
  GTEST_SKIP() << "this machine has no nccl.h";
}

#endif
