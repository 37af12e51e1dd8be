// The directory for the processes that `cairn up` and `cairn run` start for one job of this user.
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

// The default job of `cairn up`, `cairn run` and `cairn down`; --job or CAIRN_JOB names another one. They share the
// default, so that `cairn down` ends what `cairn up` started, and `cairn run` finds earlier checkpoints.
inline constexpr char kDefaultJob[] = "demo";

// Locks the directory while the processes run. The directory stays afterwards, because it has the logs: `NAME.log`, and
// `NAME.log.1` of the previous run. `rankN/agent.sock` is the socket of the agent of rank N. Only this user can access
// it, unless others may enter: then the users that an agent serves reach its socket, and can list nothing.
class RunDirectory {
 public:
  // Returns "<XDG_RUNTIME_DIR or /tmp>/cairn-<uid>/up-<job>". If <job> contains '/' or would make the paths of sockets
  // too long, its hash is used instead. If cairn-<uid> belongs to another user or is no directory,
  // "cairn-<uid>-<random>" beside it is used, and later calls find it again.
  static std::string PathOf(const std::string& job);

  // Locks the directory; makes it if it is missing. FAILED_PRECONDITION (SOCKET_DIRECTORY): the directory belongs to
  // another user, cannot be made, has a path that is too long for sockets, or another command has locked it.
  static absl::StatusOr<std::unique_ptr<RunDirectory>> Take(const std::string& path, bool others_may_enter = false);

  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  // Returns the process that has locked the directory, which may be this one; nothing if none has. Thread-safe.
  static std::optional<pid_t> HolderOf(const std::string& path);

  // A running coordinator that this user started on this machine by `cairn up` or `cairn run`.
  struct Running {
    std::string job;
    std::string address;
    std::string root;
  };
  // Returns the running coordinators, sorted by job. It looks only at directories that PathOf chooses, not at those of
  // --run-directory. It ignores a directory that another user owns or may write to.
  static std::vector<Running> RunningCoordinators();
  // Writes into the directory which job runs with which root. The coordinator itself writes its address there.
  absl::Status Describe(const std::string& job, const std::string& root) const;

  // Removes the sockets that an earlier run has left of agents that this one has not: a trainer would take them for
  // agents. `own` are the directories of this run's agents, which see to theirs. Whatever else is there stays: people
  // may give a directory in which other programs have sockets.
  void RemoveOtherSockets(const std::vector<std::string>& own) const;

  const std::string& path() const { return path_; }
  std::string SocketDirectory(int rank) const;
  // Returns the address of the agents for trainers, with "{rank}" in place of the rank.
  std::string AgentPattern() const;
  // The same by the number of a rank on this machine, "{local_rank}": trainers whose launcher numbers the machines
  // otherwise then find an agent, which tells them whose it is.
  std::string LocalSocketDirectory(int number) const;
  std::string LocalAgentPattern() const;
  // Returns the path of a new log, "NAME.log". Renames the log of the previous run to "NAME.log.1".
  std::string NewLog(const std::string& name) const;

 private:
  RunDirectory(std::string path, UniqueFd lock) : path_(std::move(path)), lock_(std::move(lock)) {}

  const std::string path_;
  const UniqueFd lock_;
};

}  // namespace cairn::cli

#endif  // CAIRN_CLI_LOCAL_RUN_DIRECTORY_H_
