#include "common/http/http_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <list>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/file/errno_error.h"
#include "common/resources/memory.h"
#include "common/resources/open_files.h"
#include "common/resources/thread.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// How long a client that has its answer may take to close its side. If the server closed first, bytes that the client
// still sends would destroy the answer.
constexpr absl::Duration kEndPatience = absl::Seconds(1);
// The maximum time for a client to read the whole answer, as a multiple of HttpServerOptions::patience.
constexpr int kPatiencesForAnswer = 12;
// How long no connections are accepted after the process had no descriptor or memory left for one.
constexpr absl::Duration kRest = absl::Milliseconds(100);
constexpr int kBacklog = 128;
constexpr size_t kPiece = 16384;

const char* StatusText(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 421:
      return "Misdirected Request";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "Bad Gateway";
  }
}

std::string Rendered(const HttpAnswer& answer) {
  std::string text =
      absl::StrCat("HTTP/1.1 ", answer.status, " ", StatusText(answer.status), "\r\nContent-Type: ", answer.type,
                   "\r\nContent-Length: ", answer.body.size(), "\r\nConnection: close\r\n");
  for (const auto& [name, value] : answer.headers) absl::StrAppend(&text, name, ": ", value, "\r\n");
  absl::StrAppend(&text, "\r\n", answer.body);
  return text;
}

HttpAnswer Plain(int status, const std::string& text) { return {status, "text/plain; charset=utf-8", text + "\n", {}}; }

}  // namespace

class HttpServer::Impl {
 public:
  Impl(std::vector<UniqueFd> listeners, UniqueFd wake, const HttpServerOptions& options)
      : options_(options), listeners_(std::move(listeners)), wake_(std::move(wake)) {}

  ~Impl() {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      for (Lane* lane : {&usual_, &urgent_}) lane->changed.NotifyAll();
    }
    Wake();
    for (std::thread& thread : threads_) thread.join();
  }

  absl::Status Serve(Handler handler) {
    handler_ = std::move(handler);
    CAIRN_RETURN_IF_ERROR(AddThread([this] { Run(); }));
    for (int i = 0; i < options_.workers; ++i) CAIRN_RETURN_IF_ERROR(AddThread([this] { Work(usual_); }));
    return options_.urgent ? AddThread([this] { Work(urgent_); }) : absl::OkStatus();
  }

 private:
  enum class State {
    kReading,    // the client must send its request
    kAnswering,  // a worker handles the request, or will
    kWriting,    // the client must read the answer
    kEnding,     // the client must close its side
  };
  struct Connection {
    UniqueFd fd;
    uint64_t id = 0;
    State state = State::kReading;
    std::string bytes;  // the request so far; later the answer
    size_t sent = 0;
    absl::Time waits_since;                       // since when the server waits for the client
    absl::Time ends_at = absl::InfiniteFuture();  // whatever the client does
  };
  using Connections = std::list<Connection>;
  struct Asked {
    uint64_t id;
    HttpRequest request;
  };
  struct Answered {
    uint64_t id;
    std::string bytes;
  };
  // Requests that wait for the same threads.
  struct Lane {
    std::deque<Asked> asked;  // at most one entry per connection
    CondVar changed;
  };

  static absl::Time Now() { return Clock::Real().SteadyNow(); }

  void Wake() const {
    const uint64_t one = 1;
    (void)!write(wake_.get(), &one, sizeof(one));
  }

  absl::Status AddThread(std::function<void()> work) {
    CAIRN_ASSIGN_OR_RETURN(std::thread thread, StartThread("to answer over HTTP", std::move(work)));
    threads_.push_back(std::move(thread));
    return absl::OkStatus();
  }

  void Work(Lane& lane) {
    while (true) {
      Asked asked;
      {
        MutexLock lock(mutex_);
        while (lane.asked.empty() && !stopping_) lane.changed.Wait(mutex_);
        if (stopping_) return;
        asked = std::move(lane.asked.front());
        lane.asked.pop_front();
      }
      std::string bytes;
      const absl::Status done = WithMemory("to answer over HTTP", [&] {
        bytes = Rendered(handler_(asked.request));
        return absl::OkStatus();
      });
      if (!done.ok()) bytes = Rendered(Plain(503, "There is not enough memory for the answer."));
      {
        MutexLock lock(mutex_);
        answered_.push_back({asked.id, std::move(bytes)});
      }
      Wake();
    }
  }

  void Run() {
    while (true) {
      std::deque<Answered> answered;
      {
        MutexLock lock(mutex_);
        if (stopping_) return;
        answered.swap(answered_);
      }
      for (Answered& each : answered) BeginWriting(std::move(each));
      EndLateOnes();
      Await();
    }
  }

  // Waits for the next event, and handles it.
  void Await() {
    const bool rests = Now() < rests_until_;
    std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}};
    for (const UniqueFd& each : listeners_) {
      polled.push_back({each.get(), static_cast<short>(rests ? 0 : POLLIN), 0});
    }
    const size_t first = polled.size();
    std::vector<Connections::iterator> of;
    for (auto each = connections_.begin(); each != connections_.end(); ++each) {
      if (each->state == State::kAnswering) continue;
      polled.push_back({each->fd.get(), static_cast<short>(each->state == State::kWriting ? POLLOUT : POLLIN), 0});
      of.push_back(each);
    }
    if (poll(polled.data(), polled.size(), MillisecondsToWait(rests)) <= 0) return;
    if (polled[0].revents != 0) {
      uint64_t count;
      (void)!read(wake_.get(), &count, sizeof(count));
    }
    for (size_t i = 0; i < of.size(); ++i) {
      if (polled[first + i].revents != 0) Move(of[i]);
    }
    // New connections are accepted last, because they may end old ones.
    for (size_t i = 0; i < listeners_.size(); ++i) {
      if (polled[1 + i].revents != 0) Accept(listeners_[i].get());
    }
  }

  int MillisecondsToWait(bool rests) const {
    absl::Time until = rests ? rests_until_ : absl::InfiniteFuture();
    for (const Connection& each : connections_) until = std::min(until, DeadlineOf(each));
    if (until == absl::InfiniteFuture()) return -1;
    return static_cast<int>(std::max<int64_t>(0, absl::ToInt64Milliseconds(until - Now()) + 1));
  }

  absl::Time DeadlineOf(const Connection& connection) const {
    if (connection.state == State::kAnswering) return absl::InfiniteFuture();
    const absl::Duration patience =
        connection.state == State::kEnding ? std::min(kEndPatience, options_.patience) : options_.patience;
    return std::min(connection.waits_since + patience, connection.ends_at);
  }

  void EndLateOnes() {
    const absl::Time now = Now();
    std::erase_if(connections_, [&](const Connection& each) { return DeadlineOf(each) <= now; });
  }

  void Accept(int listener) {
    // A client that connects again and again must not keep the others waiting.
    for (int i = 0; i < kBacklog; ++i) {
      UniqueFd fd(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!fd.valid()) {
        const bool scarce = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
        if (scarce && !EndOldest()) rests_until_ = Now() + kRest;
        if (scarce || errno == EAGAIN) return;
        continue;  // the client has gone already
      }
      if (connections_.size() >= MostConnections() && !EndOldest()) continue;
      connections_.push_back({.fd = std::move(fd), .id = ++last_id_, .bytes = "", .waits_since = Now()});
      // Most requests come with their connection.
      Move(std::prev(connections_.end()));
    }
  }

  // HTTP connections never take the descriptors that storage and peers need (open_files.h).
  size_t MostConnections() const {
    rlimit limit = {};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return options_.connections;
    const uint64_t share = SharesOfOpenFiles(limit.rlim_cur).strangers / 2;
    return std::min<uint64_t>(options_.connections, std::max<uint64_t>(1, share));
  }

  // Closes the connection whose client has kept the server waiting for longest. If all wait for the server: the one
  // whose request has waited for longest. False: none is left but urgent requests, and those that are being answered.
  bool EndOldest() {
    auto oldest = connections_.end();
    for (auto each = connections_.begin(); each != connections_.end(); ++each) {
      if (each->state == State::kAnswering) continue;
      if (oldest == connections_.end() || each->waits_since < oldest->waits_since) oldest = each;
    }
    if (oldest == connections_.end()) return EndOldestRequest();
    connections_.erase(oldest);
    return true;
  }

  // A client that has gone leaves its request behind, so the oldest one is the one that is missed least.
  bool EndOldestRequest() {
    uint64_t id = 0;
    {
      MutexLock lock(mutex_);
      if (usual_.asked.empty()) return false;
      id = usual_.asked.front().id;
      usual_.asked.pop_front();
    }
    std::erase_if(connections_, [&](const Connection& each) { return each.id == id; });
    return true;
  }

  // Reads from or writes to a connection that is ready. `at` may be invalid afterwards.
  void Move(Connections::iterator at) {
    const bool goes_on = at->state == State::kReading   ? Read(*at)
                         : at->state == State::kWriting ? Write(*at)
                                                        : Drop(*at);
    if (!goes_on) connections_.erase(at);
  }

  // The following return false if the connection must be closed.

  bool Read(Connection& connection) {
    char piece[kPiece];
    const ssize_t got = recv(connection.fd.get(), piece, sizeof(piece), 0);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) return false;
    // waits_since is not renewed: the time limit is for the whole request, also if a client sends it byte by byte.
    connection.bytes.append(piece, static_cast<size_t>(got));
    HttpRequest request;
    const RequestState state = ReadRequest(connection.bytes, request);
    switch (state) {
      case RequestState::kIncomplete:
        return true;
      case RequestState::kComplete: {
        connection.state = State::kAnswering;
        connection.bytes = std::string();
        Lane& lane = options_.urgent && options_.urgent(request) ? urgent_ : usual_;
        MutexLock lock(mutex_);
        lane.asked.push_back({connection.id, std::move(request)});
        lane.changed.NotifyOne();
        return true;
      }
      case RequestState::kMalformed:
        return BeginWriting(connection, Rendered(Plain(400, "This is not a valid HTTP request for this server.")));
      case RequestState::kTooLong:
        return BeginWriting(connection, Rendered(Plain(431, "The request is too long.")));
    }
    return false;
  }

  void BeginWriting(Answered answered) {
    const auto at = std::find_if(connections_.begin(), connections_.end(),
                                 [&](const Connection& each) { return each.id == answered.id; });
    if (at == connections_.end()) return;
    size_t unread = answered.bytes.size();
    for (const Connection& each : connections_) unread += each.state == State::kWriting ? each.bytes.size() : 0;
    while (unread > options_.unread_bytes) {
      auto oldest = connections_.end();
      for (auto each = connections_.begin(); each != connections_.end(); ++each) {
        if (each->state != State::kWriting) continue;
        if (oldest == connections_.end() || each->waits_since < oldest->waits_since) oldest = each;
      }
      if (oldest == connections_.end()) break;
      unread -= oldest->bytes.size();
      connections_.erase(oldest);
    }
    if (!BeginWriting(*at, std::move(answered.bytes))) connections_.erase(at);
  }

  bool BeginWriting(Connection& connection, std::string bytes) {
    connection.state = State::kWriting;
    connection.bytes = std::move(bytes);
    connection.waits_since = Now();
    connection.ends_at = connection.waits_since + kPatiencesForAnswer * options_.patience;
    return Write(connection);
  }

  bool Write(Connection& connection) {
    const ssize_t sent = send(connection.fd.get(), connection.bytes.data() + connection.sent,
                              connection.bytes.size() - connection.sent, MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    connection.sent += static_cast<size_t>(sent);
    if (sent > 0) connection.waits_since = Now();
    if (connection.sent < connection.bytes.size()) return true;
    connection.bytes = std::string();
    connection.state = State::kEnding;
    return shutdown(connection.fd.get(), SHUT_WR) == 0;
  }

  // Drops the client's bytes: if the server closed a socket with unread bytes, the client could lose the answer.
  static bool Drop(Connection& connection) {
    char piece[kPiece];
    const ssize_t got = recv(connection.fd.get(), piece, sizeof(piece), 0);
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
  }

  const HttpServerOptions options_;
  const std::vector<UniqueFd> listeners_;
  const UniqueFd wake_;
  Handler handler_;

  // Used only by the thread that handles the connections.
  Connections connections_;
  uint64_t last_id_ = 0;
  absl::Time rests_until_ = absl::InfinitePast();

  Mutex mutex_;
  // The content of both is guarded by the mutex.
  Lane usual_, urgent_;
  std::deque<Answered> answered_ ABSL_GUARDED_BY(mutex_);  // at most one entry per connection
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(std::vector<UniqueFd> listeners, Handler handler,
                                                              const HttpServerOptions& options) {
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return ErrnoError(errno, "eventfd", "an HTTP server");
  auto impl = std::make_unique<Impl>(std::move(listeners), std::move(wake), options);
  CAIRN_RETURN_IF_ERROR(impl->Serve(std::move(handler)));
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;

}  // namespace cairn
