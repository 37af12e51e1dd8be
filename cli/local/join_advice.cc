#include "cli/local/join_advice.h"

#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "common/base/shell_word.h"
#include "common/rpc/address.h"

namespace cairn::cli {
namespace {

// All metadata of an error may take 1 KiB.
constexpr size_t kLongestCommand = 600;
constexpr std::string_view kCoordinator = "--coordinator";

std::string OwnHostName() {
  char name[128] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

// Returns the command line with `added` behind `run` or `up` in place of --coordinator. Words behind "--" stay.
std::string WithWords(const std::vector<std::string>& words, const std::string& added) {
  const auto end = std::find(words.begin(), words.end(), "--");
  const auto verb =
      std::find_if(words.begin(), end, [](const std::string& word) { return word == "run" || word == "up"; });
  std::string command = "cairn";
  for (auto word = words.begin() + (words.empty() ? 0 : 1); word != words.end(); ++word) {
    if (word < end && *word == kCoordinator && word + 1 < end) {
      ++word;
      continue;
    }
    if (word < end && word->starts_with(std::string(kCoordinator) + "=")) continue;
    absl::StrAppend(&command, " ", ForShell(*word));
    if (word == verb && verb != end) absl::StrAppend(&command, " ", added);
  }
  return command;
}

}  // namespace

std::string HowToJoin(const RootHolder& holder, const std::vector<std::string>& words) {
  if (IsLoopback(holder.address) && holder.host != OwnHostName()) {
    return absl::StrCat("That coordinator serves ", holder.host, " only. Start this job there, or stop it and start ",
                        "one that other machines can reach (docs/launching.md), or give this job another --root.");
  }
  const std::string options = absl::StrCat("--no-coordinator --coordinator ", holder.address);
  const std::string command = WithWords(words, options);
  return absl::StrCat("To run this job beside the other one, type: ",
                      command.size() <= kLongestCommand ? command : absl::StrCat("the same command with ", options),
                      " (for as long as that coordinator runs). Else stop it first, or give another --root.");
}

}  // namespace cairn::cli
