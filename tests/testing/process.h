// A real binary under test, started, stopped, frozen and killed.
#ifndef CAIRN_TESTS_TESTING_PROCESS_H_
#define CAIRN_TESTS_TESTING_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/time/time.h"

namespace cairn::testing {

// Killed at the end, if it is still there. Not thread-safe.
class Process {
 public:
  Process() = default;
  // Standard output and error go to the end of the file `log`.
  Process(const std::vector<std::string>& command, const std::string& log);
  ~Process();
  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;

  void Signal(int signal);
  // SIGKILL, and waits for the end.
  void Kill();
  // The exit status; -1 if it has not ended by then, 128 + signal if it was killed.
  int Wait(absl::Duration timeout);
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

// A directory of the test's own, removed at the end.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A free loopback port that nobody is given by chance while this lives, also not between two processes that listen
// there one after the other.
class ReservedPort {
 public:
  ReservedPort();
  ~ReservedPort();
  // "127.0.0.1:port"
  const std::string& address() const { return address_; }

 private:
  int socket_;
  std::string address_;
};

std::string ReadWhole(const std::string& path);

}  // namespace cairn::testing

#endif  // CAIRN_TESTS_TESTING_PROCESS_H_
