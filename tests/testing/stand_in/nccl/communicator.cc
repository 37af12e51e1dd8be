#include "tests/testing/stand_in/nccl/communicator.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>
#include <utility>

#include "tests/testing/stand_in/nccl/controls.h"

namespace cairn::stand_in {
namespace {

// A smaller message goes through a ring, so that its sender need not wait for its receiver.
constexpr size_t kLetterBytes = size_t{256} << 10;
// That are taken at once, so that all peers have their turns.
constexpr size_t kPieceBytes = size_t{2} << 20;

void Pause(std::chrono::microseconds how_long) { std::this_thread::sleep_for(how_long); }

// What brings a rank its bytes: while it is busy with some, no others come.
class Network {
 public:
  // 0 for one without a limit.
  explicit Network(int64_t bytes_per_second) : bytes_per_second_(bytes_per_second) {}

  void Receive(size_t bytes) {
    if (bytes_per_second_ == 0 || bytes == 0) return;
    const std::chrono::duration<double> takes(static_cast<double>(bytes) / static_cast<double>(bytes_per_second_));
    busy_until_ = std::max(busy_until_, asked_) + std::chrono::duration_cast<Clock::duration>(takes);
  }
  bool busy() {
    if (bytes_per_second_ == 0) return false;
    asked_ = Clock::now();
    return asked_ < busy_until_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  const int64_t bytes_per_second_;
  Clock::time_point busy_until_, asked_;
};

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
  for (Operation& operation : operations) {
    operation.by_letter = operation.count >= kLetterBytes;
    left[{operation.peer, operation.send}].push_back(operation);
  }
  for (auto& [way, queue] : left) std::reverse(queue.begin(), queue.end());
  Network network(NcclSetting("bytes_per_second", 0));
  while ((!left.empty() || network.busy()) && !aborted_) {
    const uint32_t heard = segment->bell(rank_).rung();
    bool moved = false;
    for (auto way = left.begin(); way != left.end();) {
      Operation& next = way->second.back();
      const size_t before = next.count;
      if ((next.send || !network.busy()) && MoveSome(*segment, next)) {
        moved = true;
        // A sender waits for the whole letter to be taken.
        if (next.send || !next.by_letter || next.count == 0) segment->bell(next.peer).Ring();
      }
      if (!next.send) network.Receive(before - next.count);
      if (next.count == 0) way->second.pop_back();
      way = way->second.empty() ? left.erase(way) : std::next(way);
    }
    if (network.busy()) {
      Pause(std::chrono::microseconds(50));
    } else if (!moved) {
      segment->bell(rank_).Await(heard);
    }
  }
}

bool Communicator::MoveSome(Segment& segment, Operation& operation) {
  const int from = operation.send ? rank_ : operation.peer;
  const int to = operation.send ? operation.peer : rank_;
  size_t bytes = 0;
  if (operation.by_letter) {
    Letter& letter = segment.letter(from, to);
    const Letter::State state = letter.state();
    if (operation.send) {
      if (state == Letter::State::kNone) letter.Send(operation.bytes, operation.count, peer_memory_);
      if (state == Letter::State::kTaken) operation.count = 0;
      if (state == Letter::State::kRefused) operation.by_letter = false;
      if (state == Letter::State::kTaken || state == Letter::State::kRefused) letter.Clear();
      return state != Letter::State::kSent;
    }
    if (state != Letter::State::kSent) return false;
    if (operation.taken == 0) operation.mapped = letter.Map(peer_memory_);
    const size_t piece = std::min(operation.count, kPieceBytes);
    ssize_t read = static_cast<ssize_t>(piece);
    if (operation.mapped != nullptr) {
      std::memcpy(operation.bytes, operation.mapped.get() + operation.taken, piece);
    } else {
      read = letter.Read(operation.taken, operation.bytes, piece);
    }
    operation.by_letter = read >= 0;
    bytes = read > 0 ? static_cast<size_t>(read) : 0;
    operation.taken += bytes;
    if (read < 0) letter.Answer(Letter::State::kRefused);
    if (bytes == operation.count) letter.Answer(Letter::State::kTaken);
  } else {
    bytes = operation.send ? segment.ring(from, to).Write(operation.bytes, operation.count)
                           : segment.ring(from, to).Read(operation.bytes, operation.count);
  }
  operation.bytes += bytes;
  operation.count -= bytes;
  return bytes > 0;
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
