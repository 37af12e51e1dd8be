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
#include "common/file/unique_fd.h"

namespace cairn::corpus {

// Only one thread may use it at a time. The process is killed when this object goes, if it still runs. Each wait ends
// when `stop` is set (INTERRUPTED) or when the process ends (INPUT_UNREADABLE, with how it ended and what it said).
class PythonProcess {
 public:
  struct Options {
    const char* program = nullptr;       // its text
    std::vector<std::string> arguments;  // behind the text
    int file = -1;                       // becomes descriptor 3 of the process; -1: there is none
    bool takes_frames = false;           // it reads frames from standard input, which is /dev/null otherwise
    std::string path;                    // of the file that it is about, for messages
    std::string name;                    // "the reader of FILE", for messages
    std::string task;                    // "reads Parquet and Arrow files", for messages
    std::string package;                 // that Python must have, for messages
    std::string advice;                  // what to do if the process did not end well, for messages
    const std::atomic<bool>* stop = nullptr;
  };
  struct Frame {
    char kind = 0;
    uint32_t length = 0;  // of the content, which is still to be received
  };

  // CAIRN_PYTHON names the interpreter; otherwise it is python3. UNSUPPORTED: it cannot be started. INPUT_UNREADABLE:
  // the system gives no pipe or memory for it.
  static absl::StatusOr<std::unique_ptr<PythonProcess>> Start(Options options);
  ~PythonProcess();
  PythonProcess(const PythonProcess&) = delete;
  PythonProcess& operator=(const PythonProcess&) = delete;

  // Receives up to `size` bytes; at least one.
  absl::StatusOr<size_t> Receive(char* buffer, size_t size);
  absl::Status ReceiveAll(char* buffer, size_t size);
  absl::StatusOr<Frame> ReceiveFrame();
  // Receives the content of a frame. INPUT_UNREADABLE: it has more than `most` bytes.
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
