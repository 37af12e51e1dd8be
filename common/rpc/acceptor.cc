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

// The system gives the lowest number that is free. So a high one says how many descriptors are in use.
bool IsReserved(int descriptor) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  return static_cast<uint64_t>(descriptor) >= limit.rlim_cur - SharesOfOpenFiles(limit.rlim_cur).files;
}

UniqueFd Accept(int listener) { return UniqueFd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)); }

// The descriptor that is given up for a moment when no other is left. The limit is one of numbers: when it is lowered
// below the number of this one, giving it up makes no room. So the process has one for all its acceptors, which is made
// early, and keeps its number low.
class Reserve {
 public:
  static Reserve& OfProcess() {
    static Reserve& reserve = *new Reserve;
    return reserve;
  }

  // Makes it if there is none, and moves it to a lower number that is free.
  void Keep() {
    MutexLock lock(mutex_);
    UniqueFd lowest = AnyDescriptor();
    if (lowest.valid() && (!descriptor_.valid() || lowest.get() < descriptor_.get())) descriptor_ = std::move(lowest);
  }
  // Takes the connection that waits first, and closes it. Returns 0 or an errno.
  int TakeAndClose(int listener) {
    MutexLock lock(mutex_);
    descriptor_ = UniqueFd();
    const int error = Accept(listener).valid() ? 0 : errno;
    // Another thread may have been faster; then a later turn tries again.
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
        // The system asks for a descriptor before it looks whether anybody waits.
        if (const int error = Reserve::OfProcess().TakeAndClose(listener); error != 0) return error == EAGAIN;
        ++refused_;
        break;
      case ENOBUFS:
      case ENOMEM:
        LogShortage(errno);
        return false;
      default:
        // Linux also reports what went wrong with the connection that was to be taken (accept(2)); the next one may be
        // valid.
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
