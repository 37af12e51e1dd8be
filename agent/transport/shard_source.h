// Gets for the writer of a save the shards that other ranks hold.
#ifndef CAIRN_AGENT_TRANSPORT_SHARD_SOURCE_H_
#define CAIRN_AGENT_TRANSPORT_SHARD_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cairn/v1/agent_coordination_service.pb.h"

namespace cairn {

// A source serves one attempt. Shards are numbered as in SaveImage::moved_in. Implementations are thread-safe: the
// writer's threads fetch side by side. They hold no buffer of their own, so bytes go where the caller wants them.
class ShardSource {
 public:
  // Stops.
  virtual ~ShardSource() = default;

  // Takes what the coordinator says of how shards move. After the first decision only one for the host transport
  // changes anything. May make memory, but does not wait for other ranks.
  virtual void Decide(const v1::Exchange&) {}

  // Copies [offset, offset + bytes) of shard `index` to `to`, which is the caller's and is not touched after the
  // return. Blocks until the rank that holds the shard has staged and all is there, until an error, or until Stop. The
  // coordinator decides who is late, and its order to abort stops this. A rank that cannot be reached is not waited for
  // without end.
  // UNAVAILABLE (TRANSPORT_FAILED): names the rank that cannot be reached, was restarted or sends something else;
  // CANCELLED (SAVE_CANCELLED): stopped; FAILED_PRECONDITION (MEMORY_UNSEALED), and others of the source.
  virtual absl::Status Fetch(size_t index, uint64_t offset, uint64_t bytes, char* to) = 0;

  // Ends every Fetch; does not wait for their returns. Idempotent.
  virtual void Stop() = 0;

  // Blocks until no other process uses the slab: until all that this rank sends itself has been sent, or is taken from
  // it in another way. Stop ends it, though not before such a process has ended.
  virtual void AwaitEnd() {}

  // Ranks that a Fetch waits for because they have not staged yet; ascending.
  virtual std::vector<uint32_t> waiting_for() = 0;
  // Returns for people how bytes came, as LoadConsumer::transport does.
  virtual std::string transport() = 0;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_TRANSPORT_SHARD_SOURCE_H_
