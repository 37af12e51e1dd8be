// A Unix socket that gives shared memory to other processes. A process connects and sends the 8 bytes of a descriptor
// id (little-endian). The answer is one byte (0 or an errno) with the descriptor as SCM_RIGHTS. Ids are random, so only
// a process that was told an id can use it.
//
// The socket also receives descriptors: the agent tells a process an id for this purpose, and the process sends the
// descriptors with the 8 bytes. The answer is then the byte alone.
//
// The id 0 asks which agent owns the socket. The answer has no descriptor: the byte 0, the agent's incarnation (8
// bytes), its rank (4), the length of its job's name (4, all little-endian) and the name. This is needed because two
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
#include "common/base/clock.h"
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
  // Listens at `path` until the object is destroyed. `owner` is the answer to the id 0. The clock must outlive the
  // object. FAILED_PRECONDITION (SOCKET_DIRECTORY): as ListenOnUnixSocket.
  static absl::StatusOr<std::unique_ptr<DescriptorSocket>> Listen(const std::string& path, UserPolicy policy,
                                                                  SocketOwner owner,
                                                                  const Clock& clock = Clock::Real());
  ~DescriptorSocket();

  // Offers memory and returns its id. If `read_only`, receivers can only read the memory, and it is sealed first
  // (SharedMemory::OpenReadOnly), so that no process can map it writable later. Else receivers can write it.
  absl::StatusOr<uint64_t> Offer(std::shared_ptr<SharedMemory> memory, bool read_only);
  // Offers a descriptor as it is, and returns its id.
  uint64_t OfferDescriptor(UniqueFd descriptor);
  // Ends an offer. Processes that already have the descriptor keep it.
  void Withdraw(uint64_t id);

  // Returns an id under which a process may send one message with `count` descriptors (at most kMostDescriptors). When
  // it comes, `on_come` gets them, once, on the socket's thread; it must not block.
  uint64_t Await(size_t count, std::function<void(std::vector<UniqueFd>)> on_come);
  // Ends the wait for this id. `on_come` may be running.
  void StopAwaiting(uint64_t id);

  const std::string& path() const { return path_; }
  const SocketOwner& owner() const { return owner_; }

 private:
  struct Offered {
    std::shared_ptr<SharedMemory> memory;  // null for a descriptor that was offered as it is
    UniqueFd own;                          // that one, or one by which the memory can only be read
    int fd() const { return own.valid() ? own.get() : memory->fd(); }
  };

  struct Awaited {
    size_t count = 0;
    std::function<void(std::vector<UniqueFd>)> on_come;
  };

  DescriptorSocket(std::string path, UserPolicy policy, SocketOwner owner, const Clock& clock, UniqueFd listener,
                   UniqueFd wake);
  void Serve();
  // `descriptors`: those that came with the request.
  void Answer(int connection, uint64_t id, std::vector<UniqueFd> descriptors);
  // Returns false if this id awaits no descriptors.
  bool Take(int connection, uint64_t id, std::vector<UniqueFd>& descriptors);

  const std::string path_;
  const UserPolicy policy_;
  const SocketOwner owner_;
  const Clock& clock_;
  const UniqueFd listener_;
  const UniqueFd wake_;  // an eventfd: written once, to end
  Acceptor acceptor_;    // used by the socket's thread only
  Mutex mutex_;
  std::map<uint64_t, Offered> offered_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Awaited> awaited_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

// Receives the descriptor of an offered id from the descriptor socket `path`. That socket's agent must run as the user
// `owner`. Blocks for a few seconds at most. Does not check the descriptor: see LentMemory. UNAVAILABLE
// (AGENT_UNREACHABLE): nothing listens at `path`, or the id is not offered. PERMISSION_DENIED (PEER_UID): the agent
// runs as another user than `owner`, or it does not serve this process's user.
absl::StatusOr<UniqueFd> ReceiveDescriptor(const std::string& path, uint64_t id, uid_t owner);
// Returns the owner of the descriptor socket `path`. Blocks and fails as ReceiveDescriptor. An agent of an older
// version does not know this request: UNAVAILABLE (AGENT_UNREACHABLE).
absl::StatusOr<SocketOwner> AskSocketOwner(const std::string& path, uid_t owner);

}  // namespace cairn

#endif  // CAIRN_AGENT_SOCKETS_DESCRIPTOR_SOCKET_H_
