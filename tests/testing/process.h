// Runs a real binary under test: it starts, stops, freezes and kills the process.
#ifndef CAIRN_TESTS_TESTING_PROCESS_H_
#define CAIRN_TESTS_TESTING_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/time/time.h"

namespace cairn::testing {

// The destructor kills the process if it still runs. Not thread-safe.
class Process {
 public:
  Process() = default;
  // Standard output and standard error are appended to the file `log`.
  Process(const std::vector<std::string>& command, const std::string& log);
  ~Process();
  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;

  // After SIGSTOP no thread of it runs any more when this returns.
  void Signal(int signal);
  // Sends SIGKILL and waits for the end.
  void Kill();
  // Returns the exit status: -1 if the process has not ended by then, 128 + signal if it was killed.
  int Wait(absl::Duration timeout);
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

// A directory for one test, which is removed at the end.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A free loopback port that nobody else gets by chance while this object lives, also while no process listens there
// between two that do.
class ReservedPort {
 public:
  ReservedPort();
  ~ReservedPort();
  // Returns "127.0.0.1:port".
  const std::string& address() const { return address_; }

 private:
  int socket_;
  std::string address_;
};

std::string ReadWhole(const std::string& path);

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_TESTING_PROCESS_H_
