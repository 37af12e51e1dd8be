#include "cli/local/agent_scrape.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/file/unique_fd.h"

namespace cairn::cli {
namespace {

constexpr std::string_view kQuestion = "GET /metrics HTTP/1.1\r\nHost: agent\r\n\r\n";
// Many times what an agent has.
constexpr size_t kMostBytes = size_t{4} << 20;

// Returns a connection that does not block and has been asked; an invalid one if nobody listens there.
UniqueFd Ask(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return UniqueFd();
  std::memcpy(address.sun_path, path.data(), path.size());
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // A connection of a Unix socket is made at once or not at all, and takes this many bytes at once.
  if (!fd.valid() || connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      send(fd.get(), kQuestion.data(), kQuestion.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(kQuestion.size())) {
    return UniqueFd();
  }
  return fd;
}

struct Answer {
  int rank = 0;
  UniqueFd from;  // valid until the answer has ended
  std::string bytes;
};

// Reads what is there. Closes the connection at its end.
void Read(Answer& answer) {
  char piece[16384];
  while (answer.from.valid()) {
    const ssize_t got = recv(answer.from.get(), piece, sizeof(piece), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got > 0) answer.bytes.append(piece, static_cast<size_t>(got));
    const bool fails = got < 0 || answer.bytes.size() > kMostBytes;
    if (fails) answer.bytes.clear();
    if (got == 0 || fails) answer.from = UniqueFd();
  }
}

}  // namespace

std::vector<MetricsText> ScrapeAgents(const std::vector<AgentSocket>& agents, absl::Duration timeout) {
  const absl::Time deadline = Clock::Real().SteadyNow() + timeout;
  std::vector<Answer> answers;
  for (const AgentSocket& agent : agents) answers.push_back({agent.rank, Ask(agent.path), ""});
  while (true) {
    std::vector<pollfd> polled;
    for (const Answer& each : answers) polled.push_back({each.from.valid() ? each.from.get() : -1, POLLIN, 0});
    const bool done = std::ranges::none_of(answers, [](const Answer& each) { return each.from.valid(); });
    const absl::Duration left = deadline - Clock::Real().SteadyNow();
    if (done || left <= absl::ZeroDuration()) break;
    poll(polled.data(), polled.size(),
         static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1)))));
    for (size_t i = 0; i < answers.size(); ++i) {
      if (polled[i].revents != 0) Read(answers[i]);
    }
  }
  std::vector<MetricsText> texts;
  for (const Answer& each : answers) {
    const size_t body = each.bytes.find("\r\n\r\n");
    // A connection that is still open has not sent all.
    if (each.from.valid() || body == std::string::npos || !absl::StartsWith(each.bytes, "HTTP/1.1 200 ")) continue;
    texts.push_back({absl::StrCat("rank=\"", each.rank, "\""), each.bytes.substr(body + 4)});
  }
  return texts;
}

}  // namespace cairn::cli
