#include "cli/corpus/engine_run.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "cli/base/interrupt.h"
#include "cli/base/progress_line.h"
#include "common/base/clock.h"
#include "common/file/atomic_write.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/errno_status.h"
#include "corpus/io/hidden_file.h"
#include "corpus/io/input_part.h"
#include "corpus/io/object_stores.h"

namespace cairn::cli {
namespace {

constexpr uint64_t kLeastPartBytes = uint64_t{32} << 20;
constexpr uint64_t kPartsPerSlot = 3;  // so that a slow node takes fewer

std::string NameOf(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

Argument AddEngineOptions(Command command, EngineArguments& arguments) {
  const Argument engine =
      command
          .AddOption("--engine", arguments.engine,
                     "Do the work as tasks of Ray or Spark. Inputs and output must be where all nodes see them")
          .OneOf({"ray", "spark"});
  command
      .AddOption("--engine-address", arguments.address,
                 "The running cluster, as HOST:PORT or ray://HOST:PORT (Ray), spark://HOST:PORT or another master "
                 "(Spark). The default is what the engine itself finds, else a cluster on this machine")
      .Needs(engine);
  command
      .AddOption("--parts", arguments.parts,
                 "With --engine: into how many parts the inputs are divided. The output does not depend on it")
      .Between(1, corpus::kMostParts)
      .Needs(engine);
  return command
      .AddOption("--part", arguments.part,
                 "Do only the part I/N of the inputs, I from 1 to N, as a task of --engine does")
      .Excludes(engine);
}

std::vector<std::string> WordsForTasks(std::vector<std::string> without) {
  without.insert(without.end(), {"--engine", "--engine-address", "--parts"});
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::vector<std::string> words = absl::StrSplit(text, '\0');
  if (!words.empty()) words.pop_back();  // each word ends with a NUL
  std::vector<std::string> kept;
  for (auto word = std::find(words.begin(), words.end(), "corpus"); word != words.end(); ++word) {
    // "--flag=VALUE", "--flag", "-fVALUE" or "-f"
    const bool brief = word->size() > 1 && (*word)[0] == '-' && (*word)[1] != '-';
    const std::string name = brief ? word->substr(0, 2) : word->substr(0, word->find('='));
    if (std::find(without.begin(), without.end(), name) == without.end()) {
      kept.push_back(*word);
    } else if (name == *word && std::next(word) != words.end()) {
      ++word;  // its value
    }
  }
  return kept;
}

absl::StatusOr<std::unique_ptr<EngineRun>> EngineRun::Start(const EngineArguments& arguments, int cpus,
                                                            const std::string& output, const std::string& work_parent) {
  const std::string parent = work_parent.empty() ? std::string(DirectoryOf(output)) : work_parent;
  const std::string prefix = absl::StrCat(".", NameOf(output), ".engine-");
  const std::string directory = absl::StrCat(parent, "/", prefix, corpus::FreshHiddenToken());
  std::unique_ptr<EngineRun> run(new EngineRun(arguments, directory));
  if (corpus::StoresOf(directory) == nullptr) {
    CAIRN_ASSIGN_OR_RETURN(run->made_, corpus::MadeDirectory::Of(directory));
    corpus::RemoveLeftDirectories(parent, prefix);
    if (mkdir(directory.c_str(), 0777) != 0) return corpus::OutputError("create", directory, errno);
    run->held_ = UniqueFd(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (run->held_.valid()) corpus::LockHidden(run->held_.get());
  }
  CAIRN_ASSIGN_OR_RETURN(run->session_,
                         corpus::EngineSession::Start({arguments.engine, arguments.address, cpus}, InterruptFlag()));
  return run;
}

EngineRun::~EngineRun() {
  session_.reset();  // its tasks still write there
  corpus::ObjectStores* const stores = corpus::StoresOf(directory_);
  if (stores == nullptr) {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
    return;
  }
  const auto entries = stores->List(directory_);
  if (!entries.ok()) return;
  std::vector<std::string> names;
  for (const auto& entry : *entries) names.push_back(absl::StrCat(directory_, "/", entry.name));
  stores->Remove(names).IgnoreError();
}

uint32_t EngineRun::PartsFor(uint64_t bytes) const {
  if (arguments_.parts > 0) return arguments_.parts;
  const auto wanted = kPartsPerSlot * static_cast<uint64_t>(session_->slots());
  return static_cast<uint32_t>(
      std::clamp<uint64_t>(std::min(wanted, bytes / kLeastPartBytes), 1, uint64_t{corpus::kMostParts}));
}

std::string EngineRun::PathOf(const std::string& name, uint32_t number) const {
  return absl::StrFormat("%s/%s-%05d", directory_, name, number);
}

absl::StatusOr<std::vector<nlohmann::json>> EngineRun::Run(const std::string& verb,
                                                           const std::vector<corpus::EngineTask>& tasks) {
  corpus::EngineProgress progress;
  const absl::Time start = Clock::Real().SteadyNow();
  const ProgressLine line([&] {
    return absl::StrCat(progress.tasks_done.load(), " of ", progress.tasks.load(), " parts, ",
                        DescribeProgress(verb, progress.bytes_done, progress.bytes,
                                         absl::ToDoubleSeconds(Clock::Real().SteadyNow() - start)));
  });
  return session_->Run(tasks, &progress);
}

absl::Status CheckSameInputs(const std::vector<nlohmann::json>& reports) {
  for (const nlohmann::json& report : reports) {
    if (report.value("inputs", "") == reports.front().value("inputs", "")) continue;
    return MakeError(Reason::kInputUnreadable, "the parts did not find the same inputs",
                     {{"next",
                       "See that all nodes have the same files under these names, and that nothing writes there; then "
                       "give the command again."}});
  }
  return absl::OkStatus();
}

}  // namespace cairn::cli
