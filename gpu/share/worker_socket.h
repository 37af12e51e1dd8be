// One end of the socket between an agent and its worker.
#ifndef CAIRN_GPU_SHARE_WORKER_SOCKET_H_
#define CAIRN_GPU_SHARE_WORKER_SOCKET_H_

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/file/unique_fd.h"
#include "google/protobuf/message_lite.h"

namespace cairn {

// Send, closed and Close may be called from any thread; the other methods by one thread at a time.
class WorkerSocket {
 public:
  // The maximum size of a packet in bytes.
  static constexpr size_t kMaxPacket = size_t{64} << 10;

  explicit WorkerSocket(UniqueFd fd) : fd_(std::move(fd)) {}

  // Sends a message, with a descriptor if `descriptor` is not negative. Does not block for long, because the other end
  // always reads. UNAVAILABLE (TRANSPORT_FAILED): the other end is closed or does not read. RESOURCE_EXHAUSTED
  // (MESSAGE_TOO_LARGE): the message exceeds kMaxPacket.
  absl::Status Send(const google::protobuf::MessageLite& message, int descriptor);

  // Waits until Receive can return at once. Returns false after `timeout`. UNAVAILABLE (TRANSPORT_FAILED).
  absl::StatusOr<bool> Await(absl::Duration timeout);
  // Receives a packet into `message`, and its descriptor into `descriptor`. A packet must be there (see Await). Returns
  // false if the other end is closed. UNAVAILABLE (TRANSPORT_FAILED): the packet is no such message, or has more than
  // one descriptor.
  absl::StatusOr<bool> Receive(google::protobuf::MessageLite& message, UniqueFd& descriptor);

  // Returns whether one of the ends was closed. Packets that the other end sent before can still be received.
  bool closed() const;
  // Shuts the connection down. Waiting calls on both ends return.
  void Close();
  int fd() const { return fd_.get(); }

 private:
  const UniqueFd fd_;
};

}  // namespace cairn

#endif  // CAIRN_GPU_SHARE_WORKER_SOCKET_H_
