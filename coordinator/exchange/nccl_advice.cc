#include "coordinator/exchange/nccl_advice.h"

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

struct Answer {
  std::string_view part;  // of the reason
  std::string_view what;
};

// The first part that is in a reason counts.
constexpr Answer kAnswers[] = {
    {"Duplicate GPU", "Give the agent of each rank of a machine its own GPU: --nccl-device, or LOCAL_RANK."},
    {"--nccl-device=", "Give that agent the number of a GPU that it sees: --nccl-device, or LOCAL_RANK."},
    {"no --nccl-trusted-network",
     "If the network between the machines may see the bytes, give all agents --nccl-trusted-network: NCCL sends plain "
     "text."},
    {"=never", "Give the agents of all ranks the same --nccl and --nccl-saves."},
    {"is not NCCL, or too old", "Install a newer NCCL there, or name its library with --libnccl."},
    {"is not CUDA's driver, or too old", "Install a newer driver of NVIDIA there, or name its library with --libcuda."},
    {"libcuda",
     "Install NVIDIA's driver there (in a container: run it with `--gpus all`), or name its library with "
     "--libcuda."},
    {"cuInit",
     "Look at the driver and the GPUs of that machine with nvidia-smi; in a container run with `--gpus all`."},
    {"libnccl", "Install NCCL there, or name its library with --libnccl."},
    {"cannot open shared object file", "Correct --libcuda or --libnccl of that agent."},
    {" has NCCL ", "Install one version of NCCL for all agents."},
    {"not joined",
     "Look at the logs of their agents, and at the network that NCCL uses: NCCL_SOCKET_IFNAME in the agents' "
     "environment."},
    {"--memory-budget", "Give that agent more memory (--memory-budget), or smaller rounds (--round-bytes)."},
    {"tried again after",
     "The agents' logs say what broke the exchange. Wait until NCCL is tried again, or start that agent anew."},
    {"the coordinator has restarted", "Do it again."},
    {"the agents have changed", "Do it again."},
};

std::string_view FlagOf(ExchangeUse use) { return use == ExchangeUse::kLoads ? "--nccl" : "--nccl-saves"; }

}  // namespace

std::string NcclAdvice(std::string_view reason, ExchangeUse use) {
  std::string_view what = "Mend what the message says.";
  for (const Answer& answer : kAnswers) {
    if (reason.find(answer.part) == std::string_view::npos) continue;
    what = answer.what;
    break;
  }
  return absl::StrCat(std::string(what), " Or give all agents ", std::string(FlagOf(use)),
                      "=auto: then the bytes go over gRPC.");
}

std::string AdviceAfterFailedExchange(std::string_view operation, bool required, ExchangeUse use) {
  const std::string again(operation), flag(FlagOf(use));
  if (required) {
    return absl::StrCat("The agents' logs say what broke the exchange. ", again,
                        " again once NCCL is tried again: after a minute, or when an agent was started anew. Or give "
                        "all agents ",
                        flag, "=auto: then the bytes go over gRPC.");
  }
  return absl::StrCat(
      again, " again on all ranks: the next one goes over gRPC. The agents' logs say what broke the exchange.");
}

}  // namespace cairn
