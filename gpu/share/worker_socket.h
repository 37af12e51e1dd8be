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

// Any thread may call Send, closed and Close. The others are for one thread at a time.
class WorkerSocket {
 public:
  // The largest packet that is sent or taken.
  static constexpr size_t kMaxPacket = size_t{64} << 10;

  explicit WorkerSocket(UniqueFd fd) : fd_(std::move(fd)) {}

  // Sends a message, with a descriptor if `descriptor` is not negative. Does not wait long: the other end reads.
  // UNAVAILABLE (TRANSPORT_FAILED): the other end is gone or does not read; RESOURCE_EXHAUSTED (MESSAGE_TOO_LARGE).
  absl::Status Send(const google::protobuf::MessageLite& message, int descriptor);

  // Waits until a packet can be taken. False: the time is over. UNAVAILABLE (TRANSPORT_FAILED).
  absl::StatusOr<bool> Await(absl::Duration timeout);
  // Takes a packet, which must be there, into `message`, and its descriptor into `descriptor`. Returns false if the
  // other end is gone.
  // UNAVAILABLE (TRANSPORT_FAILED): what came is no such message, or has more than one descriptor.
  absl::StatusOr<bool> Receive(google::protobuf::MessageLite& message, UniqueFd& descriptor);

  // Returns whether one of the ends was closed. What the other one sent before can still be taken.
  bool closed() const;
  // Ends what both ends wait for.
  void Close();
  int fd() const { return fd_.get(); }

 private:
  const UniqueFd fd_;
};

}  // namespace cairn

#endif  // CAIRN_GPU_SHARE_WORKER_SOCKET_H_
