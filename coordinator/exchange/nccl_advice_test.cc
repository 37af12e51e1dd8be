#include "coordinator/exchange/nccl_advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cairn {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(NcclAdviceTest, Advice_KnownReasons_SaysWhatToDoAboutEach) {
  struct Case {
    const char* reason;
    const char* answer;
  };
  const Case cases[] = {
      {"rank 3 on n3: ncclCommInitRankConfig: ncclInvalidUsage: Duplicate GPU detected : rank 1 and rank 0 both on "
       "CUDA "
       "device 1000; tried again after 1m",
       "its own GPU: --nccl-device"},
      {"rank 0 on n0: --nccl-device=7 (or LOCAL_RANK), but the agent sees 2 GPUs", "the number of a GPU that it sees"},
      {"the ranks are on several machines, and rank 0 on n0 has no --nccl-trusted-network",
       "If the network between the machines may see the bytes, give all agents --nccl-trusted-network"},
      {"rank 3 on n3 has --nccl=never", "the same --nccl and --nccl-saves"},
      {"rank 3 on n3: libm.so.6 has no ncclGetVersion; it is not NCCL, or too old", "Install a newer NCCL"},
      {"rank 3 on n3: libm.so.6 has no cuGetErrorName; it is not CUDA's driver, or too old", "a newer driver"},
      {"rank 3 on n3: libcuda.so.1: cannot open shared object file: No such file or directory", "NVIDIA's driver"},
      {"rank 3 on n3: libcuda.so.1: cuInit: CUDA_ERROR_NO_DEVICE", "`--gpus all`"},
      {"rank 3 on n3: libnccl.so.2: cannot open shared object file: No such file or directory", "Install NCCL there"},
      {"rank 3 on n3: /mine/nccl.so: cannot open shared object file", "Correct --libcuda or --libnccl"},
      {"rank 0 on n0 has NCCL 2.28.9, rank 3 on n3 has 2.30.7", "one version of NCCL"},
      {"the group was not complete within 30s: rank 3 has not joined; tried again after 1m", "NCCL_SOCKET_IFNAME"},
      {"rank 3 on n3: 18.2 MiB of shared memory are needed, but of --memory-budget, 12.0 MiB, 6.0 MiB are taken",
       "--round-bytes"},
      {"load 4 failed: demo@7 (load): rank 1: window 3; tried again after 1m", "Wait until NCCL is tried again"},
      {"the coordinator has restarted", "Do it again."},
      {"something new", "Mend what the message says."},
  };
  for (const Case& each : cases) {
    const std::string advice = NcclAdvice(each.reason, ExchangeUse::kLoads);
    EXPECT_THAT(advice, HasSubstr(each.answer)) << each.reason;
    EXPECT_THAT(advice, EndsWith(" Or give all agents --nccl=auto: then the bytes go over gRPC."));
    EXPECT_LT(advice.size(), 300u) << "metadata of an error is small";
  }
  EXPECT_THAT(NcclAdvice("rank 3 on n3 has --nccl-saves=never", ExchangeUse::kSaves), HasSubstr("--nccl-saves=auto"));
}

TEST(NcclAdviceTest, AfterFailedExchange_ByPolicy_SaysHowTheNextOneGoes) {
  const std::string load = AdviceAfterFailedExchange("Load", false, ExchangeUse::kLoads);
  EXPECT_THAT(load, StartsWith("Load again on all ranks: the next one goes over gRPC."));
  const std::string required = AdviceAfterFailedExchange("Reshard", true, ExchangeUse::kLoads);
  EXPECT_THAT(required, Not(HasSubstr("the next one")));
  EXPECT_THAT(required, HasSubstr("Reshard again once NCCL is tried again"));
  EXPECT_THAT(required, HasSubstr("--nccl=auto"));
  EXPECT_THAT(AdviceAfterFailedExchange("Save", true, ExchangeUse::kSaves), HasSubstr("--nccl-saves=auto"));
}

}  // namespace
}  // namespace cairn
