#include "common/rpc/acceptor.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/process/log.h"
#include "common/resources/open_files.h"

namespace cairn {
namespace {

constexpr absl::Duration kLogInterval = absl::Minutes(1);

UniqueFd AnyDescriptor() { return UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

// The system gives each new descriptor the lowest free number. So a high number means that many descriptors are in use.
bool IsReserved(int descriptor) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  return static_cast<uint64_t>(descriptor) >= limit.rlim_cur - SharesOfOpenFiles(limit.rlim_cur).files;
}

UniqueFd Accept(int listener) { return UniqueFd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)); }

// The reserved descriptor, which is closed for a moment when no other is left. The limit applies to descriptor numbers:
// if it is lowered below the number of the reserved descriptor, closing that makes no room. So all acceptors of the
// process share one, which is opened early and keeps a low number.
class Reserve {
 public:
  static Reserve& OfProcess() {
    static Reserve& reserve = *new Reserve;
    return reserve;
  }

  // Opens the descriptor if it is not open, and moves it to a lower number if one is free.
  void Keep() {
    MutexLock lock(mutex_);
    UniqueFd lowest = AnyDescriptor();
    if (lowest.valid() && (!descriptor_.valid() || lowest.get() < descriptor_.get())) descriptor_ = std::move(lowest);
  }
  // Accepts the first waiting connection and closes it. Returns 0 or an errno.
  int TakeAndClose(int listener) {
    MutexLock lock(mutex_);
    descriptor_ = UniqueFd();
    const int error = Accept(listener).valid() ? 0 : errno;
    // This fails if another thread has taken the descriptor; a later call of Keep tries again.
    descriptor_ = AnyDescriptor();
    return error;
  }

 private:
  Mutex mutex_;
  UniqueFd descriptor_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

Acceptor::Acceptor(const Clock& clock) : clock_(clock) { Reserve::OfProcess().Keep(); }

bool Acceptor::TakeWaiting(int listener, const std::function<void(UniqueFd)>& taken, int most) {
  for (int turn = 0; turn < most; ++turn) {
    UniqueFd connection = Accept(listener);
    if (connection.valid()) {
      Reserve::OfProcess().Keep();
      if (IsReserved(connection.get())) {
        LogShortage(EMFILE);
        ++refused_;
        continue;
      }
      if (short_) LogEnd();
      taken(std::move(connection));
      continue;
    }
    switch (errno) {
      case EAGAIN:
        return true;
      case EMFILE:
      case ENFILE:
        LogShortage(errno);
        // accept() fails with EMFILE even if no connection waits.
        if (const int error = Reserve::OfProcess().TakeAndClose(listener); error != 0) return error == EAGAIN;
        ++refused_;
        break;
      case ENOBUFS:
      case ENOMEM:
        LogShortage(errno);
        return false;
      default:
        // Linux also returns errors of the connection itself (accept(2)). The next connection may be valid.
        break;
    }
  }
  return true;
}

void Acceptor::LogShortage(int error) {
  const absl::Time now = clock_.SteadyNow();
  if (now - logged_ < kLogInterval) return;
  short_ = true;
  logged_ = now;
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  Log(LogLevel::kError, "no_descriptors",
      {{"error", std::strerror(error)},
       {"limit", limit.rlim_cur},
       {"refused", refused_},
       {"next", error == EMFILE ? "Start it with a higher limit of open files (ulimit -n, systemd's LimitNOFILE), or "
                                  "raise it now: prlimit --pid PID --nofile=65536."
                                : "The whole system has no room for more connections; free memory or raise "
                                  "fs.file-max."}});
}

void Acceptor::LogEnd() {
  short_ = false;
  Log(LogLevel::kInfo, "descriptors_free", {{"refused", refused_}});
  refused_ = 0;
}

}  // namespace cairn
