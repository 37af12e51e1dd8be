// Lets a command of `cairn corpus` do its work as tasks of Ray or Spark: its options, the directory in which parts wait
// until all are complete, and the progress.
#ifndef CAIRN_CLI_CORPUS_ENGINE_RUN_H_
#define CAIRN_CLI_CORPUS_ENGINE_RUN_H_

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/base/command.h"
#include "common/file/unique_fd.h"
#include "corpus/engine/engine_session.h"
#include "corpus/io/made_directory.h"

namespace cairn::cli {

struct EngineArguments {
  std::string engine;  // empty: none
  std::string address;
  uint32_t parts = 0;  // 0: by the inputs and the cluster
  std::string part;    // "I/N": what a task does; empty: all
};

// Adds --engine, --engine-address, --parts and --part. Returns --part, because some flags need it, or make no sense in
// a task.
Argument AddEngineOptions(Command command, EngineArguments& arguments);

// Returns the words of this process's command line from "corpus" on, without the options of AddEngineOptions and those
// in `without`, of which each has one value. They are what a task runs too.
std::vector<std::string> WordsForTasks(std::vector<std::string> without);

// Not thread-safe.
class EngineRun {
 public:
  // `output` is the file or object that the command makes; parts wait in a hidden directory beside it, which
  // all nodes must see, or in `work_parent` if that is not empty. `cpus`: of each task. Errors of EngineSession::Start;
  // NO_SPACE, STORAGE_READ_ONLY, STORAGE_ERROR: the directory cannot be made.
  static absl::StatusOr<std::unique_ptr<EngineRun>> Start(const EngineArguments& arguments, int cpus,
                                                          const std::string& output,
                                                          const std::string& work_parent = "");
  // Ends all tasks, and removes the directory with all that is in it.
  ~EngineRun();
  EngineRun(const EngineRun&) = delete;
  EngineRun& operator=(const EngineRun&) = delete;

  // Returns how many parts `bytes` of input should have: as --parts says, else some for each slot, none of them tiny.
  uint32_t PartsFor(uint64_t bytes) const;
  const std::string& directory() const { return directory_; }
  // Returns "DIRECTORY/NAME-00007".
  std::string PathOf(const std::string& name, uint32_t number) const;

  // As EngineSession::Run, with a line of progress that begins with `verb`.
  absl::StatusOr<std::vector<nlohmann::json>> Run(const std::string& verb,
                                                  const std::vector<corpus::EngineTask>& tasks);

 private:
  EngineRun(const EngineArguments& arguments, std::string directory)
      : arguments_(arguments), directory_(std::move(directory)) {}

  const EngineArguments arguments_;
  const std::string directory_;
  corpus::MadeDirectory made_;
  UniqueFd held_;  // so others see that it is not one that was left
  std::unique_ptr<corpus::EngineSession> session_;
};

// INPUT_UNREADABLE: the parts in which these reports were made are not of the same inputs ("inputs").
absl::Status CheckSameInputs(const std::vector<nlohmann::json>& reports);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_CORPUS_ENGINE_RUN_H_
