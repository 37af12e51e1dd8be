#include "tests/testing/stand_in/nccl/rendezvous.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

namespace cairn::stand_in {
namespace {

struct Answer {
  int32_t result = nccl::kSuccess;
  char error[200] = {};
};

socklen_t AddressOf(const nccl::UniqueId& id, sockaddr_un* address) {
  address->sun_family = AF_UNIX;
  const size_t length = strnlen(id.internal, sizeof(address->sun_path) - 1);
  address->sun_path[0] = '\0';  // abstract
  std::memcpy(address->sun_path + 1, id.internal, length);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
}

void SendAnswer(int connection, const Answer& answer, int fd) {
  Answer sent = answer;
  iovec data = {&sent, sizeof(sent)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof(int));
  }
  (void)sendmsg(connection, &message, MSG_NOSIGNAL);
}

struct Peer {
  int connection = -1;
  Hello hello;
};

Answer Check(const std::vector<Peer>& peers) {
  Answer answer;
  for (size_t i = 0; i < peers.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      const Hello& a = peers[k].hello;
      const Hello& b = peers[i].hello;
      if (a.version != b.version) {
        answer.result = nccl::kInvalidUsage;
        std::snprintf(answer.error, sizeof(answer.error), "Mismatched NCCL version detected : rank %d %d rank %d %d",
                      a.rank, a.version, b.rank, b.version);
      } else if (a.rank == b.rank) {
        answer.result = nccl::kInvalidUsage;
        std::snprintf(answer.error, sizeof(answer.error), "Duplicate rank %d", a.rank);
      } else if (a.device == b.device && std::strcmp(a.host, b.host) == 0 && !(a.shared_device && b.shared_device)) {
        answer.result = nccl::kInvalidUsage;
        std::snprintf(answer.error, sizeof(answer.error),
                      "Duplicate GPU detected : rank %d and rank %d both on CUDA device %d", a.rank, b.rank, a.device);
      }
      if (answer.result != nccl::kSuccess) return answer;
    }
  }
  return answer;
}

// Takes the ranks as they come. Returns false if nobody can come any more.
bool Gather(int listener, std::vector<Peer>& peers) {
  for (;;) {
    Peer peer;
    peer.connection = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (peer.connection < 0) return false;
    if (recv(peer.connection, &peer.hello, sizeof(peer.hello), 0) != sizeof(peer.hello) || peer.hello.ranks < 1 ||
        peer.hello.ranks > Segment::kMostRanks || peer.hello.rank < 0 || peer.hello.rank >= peer.hello.ranks) {
      close(peer.connection);
      continue;
    }
    peers.push_back(peer);
    if (peers.size() == static_cast<size_t>(peers.front().hello.ranks)) return true;
  }
}

void Watch(std::vector<Peer> peers, Segment& segment) {
  while (!peers.empty()) {
    std::vector<pollfd> polled;
    for (const Peer& peer : peers) polled.push_back({peer.connection, POLLIN, 0});
    if (poll(polled.data(), polled.size(), -1) < 0) continue;
    for (size_t i = peers.size(); i-- > 0;) {
      if (polled[i].revents == 0) continue;
      char goodbye = 0;
      if (recv(peers[i].connection, &goodbye, 1, MSG_DONTWAIT) != 1) segment.dead(peers[i].hello.rank) = 1;
      close(peers[i].connection);
      peers.erase(peers.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
}

void Serve(int listener) {
  std::vector<Peer> peers;
  const bool complete = Gather(listener, peers);
  close(listener);
  if (!complete) return;
  const int ranks = peers.front().hello.ranks;
  const Answer answer = Check(peers);
  const int fd = answer.result == nccl::kSuccess ? Segment::Create(ranks) : -1;
  // The first rank's process, which is this one, may end as soon as it has its answer.
  std::sort(peers.begin(), peers.end(), [](const Peer& a, const Peer& b) { return a.hello.rank > b.hello.rank; });
  for (const Peer& peer : peers) SendAnswer(peer.connection, answer, fd);
  const std::shared_ptr<Segment> segment = fd >= 0 ? Segment::Map(fd, ranks) : nullptr;
  if (segment != nullptr) {
    Watch(std::move(peers), *segment);
  } else {
    for (const Peer& peer : peers) close(peer.connection);
  }
}

}  // namespace

bool ServeUniqueId(nccl::UniqueId* id) {
  unsigned char random[16];
  if (getrandom(random, sizeof(random), 0) != sizeof(random)) return false;
  std::string name = "cairn-stand-in-nccl-";
  for (const unsigned char byte : random) {
    name += "0123456789abcdef"[byte >> 4];
    name += "0123456789abcdef"[byte & 15];
  }
  *id = {};
  std::memcpy(id->internal, name.data(), name.size());
  sockaddr_un address = {};
  const socklen_t length = AddressOf(*id, &address);
  const int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (listener < 0 || bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(listener, Segment::kMostRanks) != 0) {
    close(listener);
    return false;
  }
  std::thread([listener] { Serve(listener); }).detach();
  return true;
}

int Connect(const nccl::UniqueId& id, const Hello& hello) {
  sockaddr_un address = {};
  const socklen_t length = AddressOf(id, &address);
  const int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (connection < 0) return -1;
  if (connect(connection, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      send(connection, &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello)) {
    close(connection);
    return -1;
  }
  return connection;
}

Joined TakeAnswer(int connection, int ranks) {
  Joined joined;
  joined.connection = connection;
  Answer answer;
  iovec data = {&answer, sizeof(answer)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  if (recvmsg(connection, &message, MSG_CMSG_CLOEXEC) != sizeof(answer)) {
    joined.result = nccl::kRemoteError;
    joined.error = "the process that made the unique id has ended";
    return joined;
  }
  joined.result = answer.result;
  joined.error = answer.error;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (joined.result != nccl::kSuccess || header == nullptr) return joined;
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof(int));
  joined.segment = Segment::Map(fd, ranks);
  if (joined.segment == nullptr) joined.result = nccl::kSystemError;
  return joined;
}

void SayGoodbye(int connection) {
  const char goodbye = 1;
  (void)send(connection, &goodbye, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace cairn::stand_in
