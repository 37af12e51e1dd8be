// The directory of the processes that `cairn up` and `cairn run` start for one job of this user.
#ifndef CAIRN_CLI_LOCAL_RUN_DIRECTORY_H_
#define CAIRN_CLI_LOCAL_RUN_DIRECTORY_H_

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/file/unique_fd.h"

namespace cairn::cli {

// The job of the commands that start and end processes, unless --job or CAIRN_JOB names another one. The three have one
// default, so that `cairn down` ends what `cairn up` began, and `cairn run` finds the checkpoints of either.
inline constexpr char kDefaultJob[] = "demo";

// Holds the directory while the processes run. It stays afterwards, because it has their logs: `NAME.log`, and
// `NAME.log.1` of the run before. `rankN/agent.sock` is the agent of rank N. Only this user can use it.
class RunDirectory {
 public:
  // Returns "<XDG_RUNTIME_DIR or /tmp>/cairn-<uid>/up-<job>". A name with '/', or one that would make the paths of
  // sockets too long, is replaced by its hash. If cairn-<uid> is another user's, or no directory, the place is one of
  // this user's own beside it, "cairn-<uid>-<random>", which is found again.
  static std::string PathOf(const std::string& job);

  // Takes the directory, and makes it if it is missing. FAILED_PRECONDITION (SOCKET_DIRECTORY): it belongs to another
  // user, cannot be made, is too long for sockets, or another command holds it.
  static absl::StatusOr<std::unique_ptr<RunDirectory>> Take(const std::string& path);

  // Returns the process that holds the directory; nothing if none does.
  static std::optional<pid_t> HolderOf(const std::string& path);

  // A coordinator that `cairn up` or `cairn run` of this user has started on this machine, and that is up.
  struct Running {
    std::string job;
    std::string address;
    std::string root;
  };
  // Returns those whose directories are where PathOf puts them, sorted by job: a --run-directory is not found. A
  // directory that another user owns or may write to counts for nothing.
  static std::vector<Running> RunningCoordinators();
  // Says which job runs here with which root. Where its coordinator is to be found, if it has one here, the coordinator
  // says itself.
  absl::Status Describe(const std::string& job, const std::string& root) const;

  const std::string& path() const { return path_; }
  std::string SocketDirectory(int rank) const;
  // Returns where trainers find their agents, with "{rank}" in place of the rank.
  std::string AgentPattern() const;
  // Returns the path of a log to write to. The log of the last run is kept as "NAME.log.1".
  std::string NewLog(const std::string& name) const;

 private:
  RunDirectory(std::string path, UniqueFd lock) : path_(std::move(path)), lock_(std::move(lock)) {}

  const std::string path_;
  const UniqueFd lock_;
};

}  // namespace cairn::cli

#endif  // CAIRN_CLI_LOCAL_RUN_DIRECTORY_H_
