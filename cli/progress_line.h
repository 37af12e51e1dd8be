// One line on a terminal's standard error that tells how far long work has come.
#ifndef CAIRN_CLI_PROGRESS_LINE_H_
#define CAIRN_CLI_PROGRESS_LINE_H_

#include <functional>
#include <string>
#include <thread>

#include "common/base/mutex.h"

namespace cairn::cli {

// Shows `text()`, called from another thread, five times a second until destroyed; nothing where standard error is no
// terminal.
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

// "reading 1.2 GiB of 5.0 GiB (24 %), 812 MiB/s, 5 s left"; total 0: not known.
std::string DescribeProgress(const std::string& verb, uint64_t done, uint64_t total, double seconds);

}  // namespace cairn::cli

#endif  // CAIRN_CLI_PROGRESS_LINE_H_
