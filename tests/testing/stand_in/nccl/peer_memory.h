// Memory of other processes that this one maps, so that bytes cross with one copy by this process: as NCCL does with
// memory that is registered. What is shared already can be mapped, such as windows of an exchange.
#ifndef CAIRN_TESTS_TESTING_STAND_IN_NCCL_PEER_MEMORY_H_
#define CAIRN_TESTS_TESTING_STAND_IN_NCCL_PEER_MEMORY_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>

namespace cairn::stand_in {

// A mapping of a file in a process, which other processes can map too. It is none if `begin` is 0.
struct SharedRange {
  pid_t process = 0;
  uintptr_t begin = 0, end = 0;  // in that process
  uint64_t offset = 0;           // in the file
  uint64_t inode = 0;

  bool operator==(const SharedRange&) const = default;
};

// Thread-safe.
class PeerMemory {
 public:
  // Returns the mapping of this process that holds all these bytes, if others can map it.
  SharedRange FindOwn(const char* bytes, size_t count);
  // Returns where bytes stand here that are at `bytes` in the range's process; null if the system does not let this
  // process map them. They can be read as long as the holder lives.
  std::shared_ptr<const char> Map(const SharedRange& range, const char* bytes);

 private:
  struct Mapped {
    SharedRange range;
    std::shared_ptr<const char> memory;
  };
  // Few are in use at a time. What is mapped here is not free as long as it is kept.
  static constexpr size_t kMostKept = 16;

  std::mutex mutex_;
  std::list<Mapped> kept_;      // the last used one first
  std::list<SharedRange> own_;  // likewise: to read /proc/self/maps takes as long as to copy a megabyte
};

}  // namespace cairn::stand_in

#endif  // CAIRN_TESTS_TESTING_STAND_IN_NCCL_PEER_MEMORY_H_
