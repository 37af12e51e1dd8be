#include "common/rpc/acceptor.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/process/log.h"
#include "common/resources/open_files.h"

namespace cairn {
namespace {

constexpr int kTakenInTurn = 64;
constexpr absl::Duration kLogInterval = absl::Minutes(1);

UniqueFd AnyDescriptor() { return UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

// The system gives the lowest number that is free. So a high one says how many descriptors are in use.
bool IsReserved(int descriptor) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  return static_cast<uint64_t>(descriptor) >= limit.rlim_cur - SharesOfOpenFiles(limit.rlim_cur).files;
}

UniqueFd Accept(int listener) { return UniqueFd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)); }

}  // namespace

Acceptor::Acceptor(const Clock& clock) : clock_(clock), reserve_(AnyDescriptor()) {}

bool Acceptor::TakeWaiting(int listener, const std::function<void(UniqueFd)>& taken) {
  for (int turn = 0; turn < kTakenInTurn; ++turn) {
    UniqueFd connection = Accept(listener);
    if (connection.valid()) {
      if (!reserve_.valid()) reserve_ = AnyDescriptor();
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
        if (!Refuse(listener)) return false;
        break;
      case ENOBUFS:
      case ENOMEM:
        LogShortage(errno);
        return false;
      default:
        // Linux also reports what went wrong with the connection that was to be taken (accept(2)); the next one may be
        // sound.
        break;
    }
  }
  return true;
}

bool Acceptor::Refuse(int listener) {
  if (!reserve_.valid()) return false;
  reserve_ = UniqueFd();
  const bool refused = Accept(listener).valid();
  if (refused) ++refused_;
  // Another thread may have been faster; then the next turn tries again.
  reserve_ = AnyDescriptor();
  return refused;
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
