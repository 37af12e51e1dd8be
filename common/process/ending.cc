#include "common/process/ending.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/printable.h"
#include "common/status/reason.h"

namespace cairn {

Ending::Ending() {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGTERM);
  sigaddset(&signals_, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  signal_fd_ = UniqueFd(signalfd(-1, &signals_, SFD_CLOEXEC));
  error_fd_ = UniqueFd(eventfd(0, EFD_CLOEXEC));
}

void Ending::OnError(const absl::Status& error) {
  {
    MutexLock lock(mutex_);
    if (!error_.ok()) return;
    error_ = error;
  }
  const uint64_t one = 1;
  (void)!write(error_fd_.get(), &one, sizeof one);
}

int Ending::Await(absl::Duration pause, const std::function<void()>& meanwhile) {
  const int milliseconds =
      pause == absl::InfiniteDuration() ? -1 : static_cast<int>(std::max<int64_t>(absl::ToInt64Milliseconds(pause), 1));
  pollfd polled[] = {{signal_fd_.get(), POLLIN, 0}, {error_fd_.get(), POLLIN, 0}};
  while (true) {
    const int ready = poll(polled, 2, milliseconds);
    if (ready == 0) meanwhile();
    if (ready > 0) break;
  }
  if (polled[0].revents == 0) return 0;
  signalfd_siginfo received = {};
  (void)!read(signal_fd_.get(), &received, sizeof received);
  return static_cast<int>(received.ssi_signo);
}

void Ending::LetSignalsThrough() { pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr); }

bool Ending::ComesWithin(absl::Duration most) {
  pollfd polled[] = {{signal_fd_.get(), POLLIN, 0}, {error_fd_.get(), POLLIN, 0}};
  return poll(polled, 2, static_cast<int>(absl::ToInt64Milliseconds(most))) > 0;
}

absl::Status Ending::Error() {
  MutexLock lock(mutex_);
  return error_;
}

int ExitStatusOf(const absl::Status& end, int failed) {
  if (end.ok()) return 0;
  const Reason reason = ReasonOf(end).value_or(Reason::kInternal);
  const std::string next = NextActionOf(end);
  const std::string text =
      absl::StrCat("error: ", std::string(InfoOf(reason).name), ": ", Printable(std::string(end.message()), "\n\t"),
                   next.empty() ? "" : absl::StrCat("\n  next: ", Printable(next, "\n\t")), "\n");
  (void)!write(STDERR_FILENO, text.data(), text.size());
  return failed;
}

}  // namespace cairn
