// Hands shared memory to other processes: they connect, send the 8 bytes of a descriptor id (little-endian), and get
// one byte (0 or an errno) with the descriptor as SCM_RIGHTS. Ids are random, so knowing one is being told it.
//
// It also takes descriptors: for an id that the agent has told it for that, a process sends them with the 8 bytes, and
// the answer is the byte alone.
//
// The id 0 asks whose socket this is. The answer has no descriptor: the byte 0, then the agent's incarnation (8 bytes),
// its rank (4), the length of its job's name (4, all little-endian) and the name. A path alone does not say that: two
// containers of one machine often have different sockets under the same path.
#ifndef CAIRN_AGENT_SOCKETS_DESCRIPTOR_SOCKET_H_
#define CAIRN_AGENT_SOCKETS_DESCRIPTOR_SOCKET_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/sockets/peer.h"
#include "agent/staging/shared_memory.h"
#include "common/base/mutex.h"
#include "common/file/unique_fd.h"
#include "common/rpc/acceptor.h"

namespace cairn {

// Names the agent that listens at a descriptor socket.
struct SocketOwner {
  std::string job;
  uint32_t rank = 0;
  uint64_t incarnation = 0;
};

// Thread-safe.
class DescriptorSocket {
 public:
  // Listens at `path` until it is destroyed, and tells everybody that asks that it is that of `owner`.
  // FAILED_PRECONDITION (SOCKET_DIRECTORY).
  static absl::StatusOr<std::unique_ptr<DescriptorSocket>> Listen(const std::string& path, UserPolicy policy,
                                                                  SocketOwner owner);
  ~DescriptorSocket();

  // Offers memory, to writers or, if `read_only`, to readers: then it is sealed first (SharedMemory::OpenReadOnly), so
  // that no reader ever has memory that others may still come to write. Returns its id.
  absl::StatusOr<uint64_t> Offer(std::shared_ptr<SharedMemory> memory, bool read_only);
  // No more of it; those who have it keep it.
  void Withdraw(uint64_t id);

  // Waits for a message with `count` descriptors, of which one message may have kMostDescriptors. Returns its id. Then
  // `on_come` gets them, once, on the socket's thread, which it must not keep.
  uint64_t Await(size_t count, std::function<void(std::vector<UniqueFd>)> on_come);
  // No more of it. `on_come` may be running.
  void StopAwaiting(uint64_t id);

  const std::string& path() const { return path_; }
  const SocketOwner& owner() const { return owner_; }

 private:
  struct Offered {
    std::shared_ptr<SharedMemory> memory;
    UniqueFd read_only;
    int fd() const { return read_only.valid() ? read_only.get() : memory->fd(); }
  };

  struct Awaited {
    size_t count = 0;
    std::function<void(std::vector<UniqueFd>)> on_come;
  };

  DescriptorSocket(std::string path, UserPolicy policy, SocketOwner owner, UniqueFd listener, UniqueFd wake);
  void Serve();
  // `descriptors` came with the request.
  void Answer(int connection, uint64_t id, std::vector<UniqueFd> descriptors);
  // Returns false if nothing is awaited under this id.
  bool Take(int connection, uint64_t id, std::vector<UniqueFd>& descriptors);

  const std::string path_;
  const UserPolicy policy_;
  const SocketOwner owner_;
  const UniqueFd listener_;
  const UniqueFd wake_;  // an eventfd: written once, to end
  Acceptor acceptor_;    // of the thread
  Mutex mutex_;
  std::map<uint64_t, Offered> offered_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Awaited> awaited_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

// A consumer calls this. `path` is the descriptor socket of an agent that must run as the user `owner`. Waits at most a
// few seconds. The descriptor is not looked at yet: see LentMemory. UNAVAILABLE (AGENT_UNREACHABLE): nobody is there,
// or the id is not offered. PERMISSION_DENIED (PEER_UID): either side is of another user.
absl::StatusOr<UniqueFd> ReceiveDescriptor(const std::string& path, uint64_t id, uid_t owner);
// Asks whose descriptor socket stands at `path`. Waits and fails as ReceiveDescriptor; an agent of an older version
// does not know the question: UNAVAILABLE (AGENT_UNREACHABLE).
absl::StatusOr<SocketOwner> AskSocketOwner(const std::string& path, uid_t owner);

}  // namespace cairn

#endif  // CAIRN_AGENT_SOCKETS_DESCRIPTOR_SOCKET_H_
