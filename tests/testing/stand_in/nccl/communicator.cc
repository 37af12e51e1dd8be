#include "tests/testing/stand_in/nccl/communicator.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>
#include <utility>

#include "tests/testing/stand_in/nccl/controls.h"

namespace cairn::stand_in {
namespace {

void Pause(std::chrono::microseconds how_long) { std::this_thread::sleep_for(how_long); }

}  // namespace

void Communicator::Join(const nccl::UniqueId& id, const Hello& hello) {
  std::thread([self = shared_from_this(), id, hello] {
    const int connection = Connect(id, hello);
    if (connection < 0) {
      return self->Fail(nccl::kSystemError, "socketStartConnect: Connect failed : Connection refused");
    }
    pollfd polled = {connection, POLLIN, 0};
    while (poll(&polled, 1, 10) == 0 || NcclSetting("init_hangs", 0) != 0) {
      if (!self->aborted_) continue;
      close(connection);
      return;
    }
    Joined joined = TakeAnswer(connection, hello.ranks);
    const std::lock_guard lock(self->mutex_);
    self->connection_ = joined.connection;
    self->state_ = joined.result;
    self->error_ = joined.error;
    self->segment_ = std::move(joined.segment);
  }).detach();
}

bool Communicator::RootLost() {
  char byte = 0;
  return recv(connection_, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0;
}

nccl::Result Communicator::AsyncError() {
  const bool unnoticed = NcclSetting("deaths_unnoticed", 0) != 0;
  const std::lock_guard lock(mutex_);
  if (std::exchange(enqueued_, false)) return nccl::kInProgress;
  if (state_ != nccl::kSuccess || unnoticed) return state_;
  for (int peer = 0; peer < ranks_; ++peer) {
    if (peer == rank_ || segment_->dead(peer) == 0) continue;
    state_ = nccl::kRemoteError;
    error_ = "NET/Socket : remote rank " + std::to_string(peer) + " has closed the connection";
  }
  if (state_ == nccl::kSuccess && RootLost()) {
    state_ = nccl::kRemoteError;
    error_ = "NET/Socket : the bootstrap root has closed the connection";
  }
  return state_;
}

bool Communicator::ready() {
  const std::lock_guard lock(mutex_);
  return state_ == nccl::kSuccess;
}

void Communicator::Fail(nccl::Result result, const std::string& error) {
  const std::lock_guard lock(mutex_);
  state_ = result;
  error_ = error;
}

std::string Communicator::last_error() {
  const std::lock_guard lock(mutex_);
  return error_;
}

void Communicator::MarkEnqueued() {
  const std::lock_guard lock(mutex_);
  enqueued_ = true;
}

void Communicator::Move(std::vector<Operation> operations) {
  std::shared_ptr<Segment> segment;
  {
    const std::lock_guard lock(mutex_);
    segment = segment_;
  }
  // These are left, by peer and direction, in order.
  std::map<std::pair<int, bool>, std::vector<Operation>> left;
  for (Operation& operation : operations) left[{operation.peer, operation.send}].push_back(operation);
  for (auto& [way, queue] : left) std::reverse(queue.begin(), queue.end());
  int idle = 0;
  while (!left.empty() && !aborted_) {
    bool moved = false;
    for (auto way = left.begin(); way != left.end();) {
      auto& [peer, send] = way->first;
      Operation& next = way->second.back();
      const size_t bytes = send ? segment->ring(rank_, peer).Write(next.bytes, next.count)
                                : segment->ring(peer, rank_).Read(next.bytes, next.count);
      moved = moved || bytes > 0;
      next.bytes += bytes;
      next.count -= bytes;
      if (next.count == 0) way->second.pop_back();
      way = way->second.empty() ? left.erase(way) : std::next(way);
    }
    idle = moved ? 0 : idle + 1;
    if (idle > 100) {
      Pause(std::chrono::microseconds(50));
    } else if (idle > 0) {
      std::this_thread::yield();
    }
  }
}

void Communicator::Stall() {
  while (!aborted_) Pause(std::chrono::milliseconds(1));
}

void Communicator::Abort() {
  aborted_ = true;
  const std::lock_guard lock(mutex_);
  if (connection_ < 0) return;
  SayGoodbye(connection_);
  close(connection_);
  connection_ = -1;
  state_ = nccl::kInvalidUsage;
}

}  // namespace cairn::stand_in
