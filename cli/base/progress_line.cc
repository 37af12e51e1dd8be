#include "cli/base/progress_line.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cli/base/terminal.h"
#include "common/process/quantity.h"
#include "common/resources/thread.h"

namespace cairn::cli {

ProgressLine::ProgressLine(std::function<std::string()> text) : text_(std::move(text)) {
  if (!isatty(STDERR_FILENO)) return;
  auto thread = StartThread("to show the progress", [this] {
    mutex_.Lock();
    while (!stopping_) {
      changed_.WaitFor(mutex_, absl::Milliseconds(200));
      if (stopping_) break;
      std::fprintf(stderr, "\r\033[K%s", ForTerminal(text_()).c_str());
      std::fflush(stderr);
    }
    mutex_.Unlock();
  });
  if (thread.ok()) thread_ = *std::move(thread);  // without a thread there is no progress line
}

ProgressLine::~ProgressLine() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
  std::fprintf(stderr, "\r\033[K");
  std::fflush(stderr);
}

std::string DescribeProgress(const std::string& verb, uint64_t done, uint64_t total, double seconds) {
  std::string text = absl::StrCat(verb, " ", FormatSize(static_cast<int64_t>(done)));
  if (total > 0) {
    const double part = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
    absl::StrAppend(&text, " of ", FormatSize(static_cast<int64_t>(total)), " (", static_cast<int>(part * 100), " %)");
  }
  if (seconds > 0.5 && done > 0) {
    const double rate = static_cast<double>(done) / seconds;
    absl::StrAppend(&text, ", ", FormatSize(static_cast<int64_t>(rate)), "/s");
    if (total > done)
      absl::StrAppend(&text, ", ", static_cast<int>(static_cast<double>(total - done) / rate) + 1, " s left");
  }
  return text;
}

}  // namespace cairn::cli
