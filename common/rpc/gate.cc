#include "common/rpc/gate.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <utility>

#include "common/process/log.h"
#include "common/resources/open_files.h"
#include "common/rpc/channel_view.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr int kPauseMs = 100;
// A peer needs two round trips to prove itself.
constexpr absl::Duration kLeastTime = absl::Seconds(1);
constexpr absl::Duration kLogInterval = absl::Minutes(1);
// The size of the kernel's buffers for a stranger's connection.
constexpr int kSessionBufferBytes = 16 << 10;
constexpr char kHttp2Begin = 'P';  // of "PRI * HTTP/2.0"

size_t MostUnproven() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  return std::max<uint64_t>(1, SharesOfOpenFiles(limit.rlim_cur).strangers);
}

bool SendWhole(int connection, const std::string& bytes) {
  // The message is so small that it always fits into the buffer of a new connection.
  return send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

absl::StatusOr<std::unique_ptr<Gate>> Gate::Make(GateOptions options, const Clock& clock) {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  UniqueFd stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  UniqueFd nudge(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll.valid() || !stop.valid() || !nudge.valid()) {
    return MakeError(Reason::kMemoryLimit, "the process has no file descriptor left to accept connections (ulimit -n)");
  }
  return std::unique_ptr<Gate>(
      new Gate(std::move(options), clock, std::move(epoll), std::move(stop), std::move(nudge)));
}

Gate::Gate(GateOptions options, const Clock& clock, UniqueFd epoll, UniqueFd stop, UniqueFd nudge)
    : options_(std::move(options)),
      clock_(clock),
      epoll_(std::move(epoll)),
      stop_(std::move(stop)),
      nudge_(std::move(nudge)),
      acceptor_(clock),
      unproven_{StrangerTable({.most = MostUnproven(), .longest = kProofTime, .least = kLeastTime}), {}},
      sessions_{StrangerTable(
                    {.most = std::min(kMostSessions, MostUnproven()), .longest = kSessionTime, .least = kLeastTime}),
                {}} {
  Watch(stop_.get(), EPOLLIN, EPOLL_CTL_ADD);
  Watch(nudge_.get(), EPOLLIN, EPOLL_CTL_ADD);
}

void Gate::Nudge() { eventfd_write(nudge_.get(), 1); }

void Gate::Stop() { eventfd_write(stop_.get(), 1); }

bool Gate::Watch(int descriptor, uint32_t events, int operation) const {
  epoll_event event = {};
  event.events = events;
  event.data.fd = descriptor;
  return epoll_ctl(epoll_.get(), operation, descriptor, &event) == 0;
}

void Gate::Run(const std::vector<int>& listeners) {
  for (const int listener : listeners) Watch(listener, EPOLLIN, EPOLL_CTL_ADD);
  std::array<epoll_event, 128> ready = {};
  std::vector<int> waiting;
  while (true) {
    const int count = epoll_wait(epoll_.get(), ready.data(), static_cast<int>(ready.size()), TimeToWait());
    if (count < 0 && errno != EINTR) break;
    waiting.clear();
    bool stopped = false;
    for (int i = 0; i < count; ++i) {
      const int descriptor = ready[static_cast<size_t>(i)].data.fd;
      if (descriptor == stop_.get()) {
        stopped = true;
      } else if (descriptor == nudge_.get()) {
        eventfd_t value = 0;
        eventfd_read(nudge_.get(), &value);
        TellWatchers();
      } else if (std::find(listeners.begin(), listeners.end(), descriptor) != listeners.end()) {
        waiting.push_back(descriptor);
      } else {
        Serve(descriptor, ready[static_cast<size_t>(i)].events);
      }
    }
    if (stopped) break;
    CloseExpired();
    // Peers that prove themselves were served first; newcomers come after them.
    bool pause = false;
    for (const int listener : waiting) {
      if (!acceptor_.TakeWaiting(listener, [&](UniqueFd taken) { Welcome(listener, std::move(taken)); })) pause = true;
    }
    LogRefusals();
    pollfd stop = {stop_.get(), POLLIN, 0};
    if (pause) poll(&stop, 1, kPauseMs);
  }
  for (const int listener : listeners) Watch(listener, 0, EPOLL_CTL_DEL);
  while (!strangers_.empty()) Close(strangers_.begin()->first);
}

int Gate::TimeToWait() const {
  const absl::Time next = std::min(unproven_.table.NextExpiry(), sessions_.table.NextExpiry());
  if (next == absl::InfiniteFuture()) return -1;
  const absl::Duration wait = std::max(next - clock_.SteadyNow(), absl::ZeroDuration());
  return static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(wait, absl::Milliseconds(1))));
}

void Gate::Welcome(int listener, UniqueFd connection) {
  // The client may have reset the connection meanwhile. gRPC would log each of these.
  sockaddr_storage peer = {};
  socklen_t length = sizeof(peer);
  if (getpeername(connection.get(), reinterpret_cast<sockaddr*>(&peer), &length) != 0) return;
  if (options_.knows && options_.knows(connection.get())) {
    options_.passed(listener, std::move(connection));
    return;
  }
  const int descriptor = connection.get();
  Stranger stranger;
  stranger.connection = std::move(connection);
  stranger.listener = listener;
  if (!Enter(unproven_, stranger)) return;
  if (!Watch(descriptor, EPOLLIN, EPOLL_CTL_ADD)) {
    unproven_.table.Remove(stranger.number);
    unproven_.connections.erase(stranger.number);
    return;
  }
  strangers_.insert_or_assign(descriptor, std::move(stranger));
  // The client sends first, so its bytes are usually there already.
  Serve(descriptor, 0);
}

bool Gate::Enter(Room& room, Stranger& stranger) {
  const int descriptor = stranger.connection.get();
  const StrangerTable::Admission admission = room.table.Admit(groups_.Of(descriptor), clock_.SteadyNow());
  if (admission.evicted) {
    const auto evicted = room.connections.find(*admission.evicted);
    const int loser = evicted->second;
    room.connections.erase(evicted);
    Close(loser);
    ++crowded_out_;
  }
  if (!admission.admitted) {
    ++crowded_out_;
    return false;
  }
  stranger.number = *admission.admitted;
  room.connections[stranger.number] = descriptor;
  return true;
}

void Gate::Serve(int connection, uint32_t events) {
  const auto found = strangers_.find(connection);
  if (found == strangers_.end()) return;  // it was closed in this turn
  Stranger& stranger = found->second;
  switch (Continue(stranger, events)) {
    case Turn::kStays:
      return;
    case Turn::kGoes:
      return Close(connection);
    case Turn::kPasses:
      const int listener = stranger.listener;
      Watch(connection, 0, EPOLL_CTL_DEL);
      UniqueFd passing = std::move(stranger.connection);
      Close(connection);
      options_.passed(listener, std::move(passing));
      return;
  }
}

Gate::Turn Gate::Continue(Stranger& stranger, uint32_t events) {
  if (stranger.session != nullptr) return ContinueSession(stranger, events);
  if (stranger.proof != nullptr) return ContinueProof(stranger);
  return Classify(stranger);
}

Gate::Turn Gate::Classify(Stranger& stranger) {
  std::array<char, ServerProof::kHelloBytes> first = {};
  const ssize_t length = recv(stranger.connection.get(), first.data(), first.size(), MSG_PEEK | MSG_DONTWAIT);
  if (length < 0 && WouldBlock()) return Turn::kStays;
  if (length <= 0) return Turn::kGoes;
  if ((options_.keys || options_.insecure) && IsHello({first.data(), static_cast<size_t>(length)})) {
    const int descriptor = stranger.connection.get();
    stranger.proof =
        std::make_unique<ServerProof>(options_.keys ? options_.keys() : nullptr, ChannelView::OfSocket(descriptor));
    stranger.wanted = ServerProof::kHelloBytes;
    return ContinueProof(stranger);
  }
  if (options_.insecure) return Turn::kPasses;
  if (first[0] == kHttp2Begin) return BeginSession(stranger);
  ++unproven_count_;
  return Turn::kGoes;
}

Gate::Turn Gate::ContinueProof(Stranger& stranger) {
  std::array<char, ServerProof::kHelloBytes> bytes = {};
  const int connection = stranger.connection.get();
  while (true) {
    const ssize_t length = recv(connection, bytes.data(), std::min(stranger.wanted, bytes.size()), MSG_DONTWAIT);
    if (length < 0 && WouldBlock()) return Turn::kStays;
    if (length <= 0) return Turn::kGoes;
    const ServerProof::Step step = stranger.proof->Take({bytes.data(), static_cast<size_t>(length)});
    if (!step.send.empty()) {
      // A client waits for the answer before it sends more. Early bytes would fill the kernel's memory, so they are
      // refused.
      char early = 0;
      if (recv(connection, &early, 1, MSG_PEEK | MSG_DONTWAIT) > 0) return Turn::kGoes;
      if (!SendWhole(connection, step.send)) return Turn::kGoes;
      unproven_.table.Spoke(stranger.number);
    }
    if (step.state == ServerProof::Step::kProven) return Turn::kPasses;
    if (step.state == ServerProof::Step::kRefused) {
      ++unproven_count_;
      return Turn::kGoes;
    }
    stranger.wanted = step.wanted;
  }
}

Gate::Turn Gate::BeginSession(Stranger& stranger) {
  const int connection = stranger.connection.get();
  const StrangerTable::Number number = stranger.number;
  if (!Enter(sessions_, stranger)) return Turn::kGoes;
  unproven_.table.Remove(number);
  unproven_.connections.erase(number);
  stranger.session = std::make_unique<StrangerSession>(options_.answers);
  for (const int option : {SO_RCVBUF, SO_SNDBUF}) {
    setsockopt(connection, SOL_SOCKET, option, &kSessionBufferBytes, sizeof(kSessionBufferBytes));
  }
  const Turn turn = SendOfSession(stranger);
  // Its first bytes are there: reading them now marks it as speaking. Silent strangers are evicted first.
  return turn == Turn::kStays && !stranger.writing ? ContinueSession(stranger, 0) : turn;
}

Gate::Turn Gate::ContinueSession(Stranger& stranger, uint32_t events) {
  if (stranger.writing) return (events & ~EPOLLOUT) != 0 ? Turn::kGoes : SendOfSession(stranger);
  std::array<char, StrangerSession::kMostAtOnce> bytes = {};
  const ssize_t length = recv(stranger.connection.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (length < 0 && WouldBlock()) return Turn::kStays;
  if (length <= 0) return Turn::kGoes;
  sessions_.table.Spoke(stranger.number);
  const bool goes_on = stranger.session->Take({bytes.data(), static_cast<size_t>(length)});
  const Turn turn = SendOfSession(stranger);
  return goes_on ? turn : Turn::kGoes;
}

// Sends as much as fits. Nothing more is read from the stranger until everything is sent.
Gate::Turn Gate::SendOfSession(Stranger& stranger) {
  const int connection = stranger.connection.get();
  while (!stranger.session->unsent().empty()) {
    const std::string_view unsent = stranger.session->unsent();
    const ssize_t length = send(connection, unsent.data(), unsent.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (length < 0 && !WouldBlock()) return Turn::kGoes;
    if (length < 0) break;
    stranger.session->Sent(static_cast<size_t>(length));
  }
  const bool writing = !stranger.session->unsent().empty();
  if (writing != std::exchange(stranger.writing, writing)) {
    Watch(connection, writing ? EPOLLOUT : EPOLLIN, EPOLL_CTL_MOD);
  }
  return Turn::kStays;
}

void Gate::Close(int connection) {
  const auto found = strangers_.find(connection);
  if (found == strangers_.end()) return;
  Room& room = RoomOf(found->second);
  room.table.Remove(found->second.number);
  room.connections.erase(found->second.number);
  strangers_.erase(found);  // its descriptor leaves the epoll set when it is closed
}

void Gate::CloseExpired() {
  const absl::Time now = clock_.SteadyNow();
  for (Room* room : {&unproven_, &sessions_}) {
    for (const StrangerTable::Number number : room->table.TakeExpired(now)) {
      const auto expired = room->connections.find(number);
      const auto stranger = strangers_.find(expired->second);
      room->connections.erase(expired);
      if (stranger->second.session == nullptr) {
        ++silent_;
      } else {
        stranger->second.session->End();
        SendOfSession(stranger->second);
      }
      Close(stranger->first);
    }
  }
}

void Gate::TellWatchers() {
  std::vector<int> lost;
  for (auto& [connection, stranger] : strangers_) {
    if (stranger.session == nullptr || !stranger.session->watches()) continue;
    stranger.session->Tell();
    if (SendOfSession(stranger) == Turn::kGoes) lost.push_back(connection);
  }
  for (const int connection : lost) Close(connection);
}

void Gate::LogRefusals() {
  if (crowded_out_ + silent_ + unproven_count_ == 0) return;
  const absl::Time now = clock_.SteadyNow();
  if (now - logged_ < kLogInterval) return;
  logged_ = now;
  Log(LogLevel::kWarn, "strangers_refused",
      {{"unproven", std::exchange(unproven_count_, 0)},
       {"silent", std::exchange(silent_, 0)},
       {"crowded_out", std::exchange(crowded_out_, 0)},
       {"next",
        "Clients connected without a proof that they know the token. If there are many, check who can reach this "
        "port."}});
}

}  // namespace cairn
