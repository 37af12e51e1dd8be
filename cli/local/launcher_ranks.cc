#include "cli/local/launcher_ranks.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/status/reason.h"

namespace cairn::cli {
namespace {

constexpr char kFlag[] = "--nproc-per-node";

bool IsTorchrun(const std::string& argument) {
  return absl::EndsWith(argument, "torchrun") || argument == "torch.distributed.run" ||
         argument == "torch.distributed.launch";
}

}  // namespace

absl::StatusOr<int> RanksOfLauncher(const std::vector<std::string>& command) {
  bool torchrun = false;
  for (size_t i = 0; i < command.size(); ++i) {
    torchrun = torchrun || IsTorchrun(command[i]);
    // Arguments behind the script belong to the script.
    if (absl::EndsWith(command[i], ".py")) break;
    const std::string flag = absl::StrReplaceAll(command[i], {{"_", "-"}});
    absl::string_view value = flag;
    if (!torchrun || !absl::ConsumePrefix(&value, kFlag)) continue;
    if (value.empty() && i + 1 < command.size()) {
      value = command[i + 1];
    } else if (!absl::ConsumePrefix(&value, "=")) {
      continue;
    }
    int ranks = 0;
    if (absl::SimpleAtoi(value, &ranks) && ranks > 0) return ranks;
    return MakeError(
        Reason::kBadRequest,
        absl::StrCat(kFlag, " ", value, " is no number: --ranks must say how many ranks this machine has"),
        {{"next", "Add --ranks N in front of --, with the number of processes that torchrun starts here."}});
  }
  return 1;
}

bool MeetsByOwnName(const std::vector<std::string>& command) {
  bool torchrun = false, dynamic = false;
  for (const std::string& word : command) {
    torchrun = torchrun || IsTorchrun(word);
    if (absl::EndsWith(word, ".py")) break;
    const std::string flag = absl::StrReplaceAll(word, {{"_", "-"}});
    if (torchrun && absl::StartsWith(flag, "--local-addr")) return false;
    // Without these the ranks meet at --master-addr, which is 127.0.0.1 by default.
    dynamic = dynamic || (torchrun && (flag == "--standalone" || absl::StartsWith(flag, "--rdzv-")));
  }
  return dynamic;
}

}  // namespace cairn::cli
