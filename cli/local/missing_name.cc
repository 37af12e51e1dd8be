#include "cli/local/missing_name.h"

#include "absl/strings/str_cat.h"

namespace cairn::cli {
namespace {

// The maximum number of jobs that are named.
constexpr size_t kMostNamed = 4;

// Returns for example "Here run demo, other.".
std::string JobsHere(const std::vector<RunDirectory::Running>& running) {
  std::string text;
  for (size_t i = 0; i < running.size() && i < kMostNamed; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : ", ", running[i].job);
  }
  if (running.size() > kMostNamed) absl::StrAppend(&text, " and ", running.size() - kMostNamed, " more");
  return absl::StrCat(running.size() == 1 ? "Job " : "Jobs ", text,
                      running.size() == 1 ? " runs here. " : " run here. ");
}

}  // namespace

std::string WhereNamesAre(const std::string& argument, const std::string& coordinator,
                          const std::vector<RunDirectory::Running>& running) {
  if (argument == "--root") {
    if (running.size() != 1) return "It is the directory of the checkpoints.";
    return absl::StrCat("It is the directory of the checkpoints: that of job ", running[0].job, " is ", running[0].root,
                        ".");
  }
  const bool job_alone = argument == "JOB";
  if (!job_alone && !argument.starts_with("JOB@")) return "";
  const bool known = !coordinator.empty() || running.size() == 1;
  std::string text = coordinator.empty() && !running.empty() ? JobsHere(running) : "";
  absl::StrAppend(&text, known ? "`cairn jobs`" : "`cairn jobs --coordinator HOST:PORT`, or `cairn jobs --root DIR`,",
                  " lists the jobs");
  if (!job_alone) {
    const std::string job = coordinator.empty() && running.size() == 1 ? running[0].job : "JOB";
    absl::StrAppend(&text, ", and `cairn list ", job, "` the steps of one");
  }
  return absl::StrCat(text, ".");
}

}  // namespace cairn::cli
