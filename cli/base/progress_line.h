// Shows the progress of long work in one line on standard error, if it is a terminal.
#ifndef CAIRN_CLI_BASE_PROGRESS_LINE_H_
#define CAIRN_CLI_BASE_PROGRESS_LINE_H_

#include <functional>
#include <string>
#include <thread>

#include "common/base/mutex.h"

namespace cairn::cli {

// Shows the result of `text()` five times a second until destroyed. Calls `text()` on a thread of its own. Shows
// nothing if standard error is no terminal.
class ProgressLine {
 public:
  explicit ProgressLine(std::function<std::string()> text);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

 private:
  const std::function<std::string()> text_;
  Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

// Returns for example "reading 1.2 GiB of 5.0 GiB (24 %), 812 MiB/s, 5 s left". `total` is 0 if it is not known.
std::string DescribeProgress(const std::string& verb, uint64_t done, uint64_t total, double seconds);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_BASE_PROGRESS_LINE_H_
