#include "common/rpc/accept_loop.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/process/log.h"

namespace cairn {
namespace {

constexpr int kPauseMs = 100;
constexpr int kTakenInTurn = 64;
constexpr absl::Duration kLogInterval = absl::Minutes(1);

UniqueFd AnyDescriptor() { return UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

UniqueFd Accept(int listener) { return UniqueFd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)); }

}  // namespace

AcceptLoop::AcceptLoop(const Clock& clock) : clock_(clock), reserve_(AnyDescriptor()) {}

void AcceptLoop::Run(const std::vector<int>& listeners, int wake,
                     const std::function<void(int listener, UniqueFd)>& taken) {
  std::vector<pollfd> polled = {{wake, POLLIN, 0}};
  for (const int listener : listeners) polled.push_back({listener, POLLIN, 0});
  while (true) {
    if (poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) return;
    if (polled[0].revents != 0) return;
    bool pause = false;
    for (size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents != 0 && !TakeWaiting(polled[i].fd, taken)) pause = true;
    }
    if (pause) poll(polled.data(), 1, kPauseMs);
  }
}

bool AcceptLoop::TakeWaiting(int listener, const std::function<void(int, UniqueFd)>& taken) {
  for (int turn = 0; turn < kTakenInTurn; ++turn) {
    UniqueFd connection = Accept(listener);
    if (connection.valid()) {
      if (!reserve_.valid()) reserve_ = AnyDescriptor();
      if (short_) LogEnd();
      taken(listener, std::move(connection));
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

bool AcceptLoop::Refuse(int listener) {
  if (!reserve_.valid()) return false;
  reserve_ = UniqueFd();
  const bool refused = Accept(listener).valid();
  if (refused) ++refused_;
  // Another thread may have been faster; then the next turn tries again.
  reserve_ = AnyDescriptor();
  return refused;
}

void AcceptLoop::LogShortage(int error) {
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

void AcceptLoop::LogEnd() {
  short_ = false;
  Log(LogLevel::kInfo, "descriptors_free", {{"refused", refused_}});
  refused_ = 0;
}

}  // namespace cairn
