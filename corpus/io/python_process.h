// Runs a program in Python in a process of its own, because a library that only Python has does the work. The two sides
// exchange frames: one byte for the kind, the length as a little-endian u32, and the content.
#ifndef CAIRN_CORPUS_IO_PYTHON_PROCESS_H_
#define CAIRN_CORPUS_IO_PYTHON_PROCESS_H_

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/file/unique_fd.h"
#include "common/status/reason.h"

namespace cairn::corpus {

// Only one thread may use it at a time. The process is killed when this object goes, if it still runs. Each wait ends
// when `stop` is set (INTERRUPTED) or when the process ends (`failure`, with how it ended and what it said).
class PythonProcess {
 public:
  struct Options {
    const char* program = nullptr;       // its text
    std::vector<std::string> arguments;  // behind the text
    int file = -1;                       // becomes descriptor 3 of the process; -1: there is none
    bool takes_frames = false;           // it reads frames from standard input, which is /dev/null otherwise
    std::string path;                    // of the file that it is about, for messages; empty: there is none
    std::string name;                    // "the reader of FILE", for messages
    std::string task;                    // "reads Parquet and Arrow files", for messages
    std::string package;                 // that Python must have, for messages
    std::string advice;                  // what to do if the process did not end well, for messages
    Reason failure = Reason::kInputUnreadable;
    absl::Duration end_in;  // so long it may take to end by itself when its input ends; then it is killed
    const std::atomic<bool>* stop = nullptr;
  };
  struct Frame {
    char kind = 0;
    uint32_t length = 0;  // of the content, which is still to be received
  };

  // CAIRN_PYTHON names the interpreter; otherwise it is python3. UNSUPPORTED: it cannot be started. `failure`: the
  // system gives no pipe or memory for it.
  static absl::StatusOr<std::unique_ptr<PythonProcess>> Start(Options options);
  ~PythonProcess();
  PythonProcess(const PythonProcess&) = delete;
  PythonProcess& operator=(const PythonProcess&) = delete;

  // Receives up to `size` bytes; at least one. TIMED_OUT: none has come before `deadline`.
  absl::StatusOr<size_t> Receive(char* buffer, size_t size, absl::Time deadline = absl::InfiniteFuture());
  absl::Status ReceiveAll(char* buffer, size_t size, absl::Time deadline = absl::InfiniteFuture());
  absl::StatusOr<Frame> ReceiveFrame(absl::Time deadline = absl::InfiniteFuture());
  // Receives the content of a frame. `failure`: it has more than `most` bytes.
  absl::StatusOr<std::string> ReceiveContent(const Frame& frame, size_t most);
  // Receives the content of a frame that tells a failure, and returns that. The content is JSON: reason, message, next.
  absl::Status ReceiveFailure(const Frame& frame);
  // Says that the process has sent what it must not.
  absl::Status NoFrame() const;

  absl::Status Send(std::string_view bytes);
  // Begins a frame whose content the caller sends.
  absl::Status SendHeader(char kind, uint32_t length);
  absl::Status SendFrame(char kind, std::string_view content);

 private:
  explicit PythonProcess(Options options) : options_(std::move(options)) {}
  absl::Status Run();
  // Returns the begin of messages about the file.
  std::string Subject() const { return options_.path.empty() ? "" : options_.path + ": "; }
  absl::Status Error(Reason reason, const std::string& message, const std::string& next = "") const;
  absl::Status Failed(std::string_view what, int error) const;
  absl::Status Ended();
  std::string HowItEnded();
  std::string Said() const;

  const Options options_;
  pid_t pid_ = -1;
  UniqueFd output_, input_, log_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_IO_PYTHON_PROCESS_H_
