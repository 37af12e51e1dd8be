// Structs that name blocks of the trainer's GPU memory, parts of them, and copies from there into the slab.
#ifndef CAIRN_AGENT_SESSION_DEVICE_MEMORY_H_
#define CAIRN_AGENT_SESSION_DEVICE_MEMORY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace cairn {

// Describes one allocation of the trainer's.
struct DeviceBlock {
  uint64_t id = 0;
  uint64_t bytes = 0;
  // A handle of CUDA IPC and the device's UUID are set if the trainer cannot export it as a descriptor.
  std::string ipc_handle;
  std::string device_uuid;
  bool fabric = false;  // its descriptor is that of a file with a fabric handle
};

// Names a part of an item, or all of it.
struct DeviceMemoryPart {
  uint32_t item = 0;
  uint64_t block = 0;
  uint64_t offset = 0;
  uint64_t slab_offset = 0;
  uint64_t bytes = 0;
};

// The parts of an item follow one another.
using DeviceMemoryPartsPtr = std::shared_ptr<const std::vector<DeviceMemoryPart>>;

// Says how copies have ended that have not failed.
struct DeviceCopied {
  enum class Kind {
    kDone,
    kRefused,  // nothing was copied; `why` says what the driver refused
    kLost,     // nothing was copied, because the process that had the blocks is gone
  };
  Kind kind = Kind::kDone;
  std::string why;
  // The devices say that these are the CRC32Cs of the parts. There are none if `unchecked` says why not.
  std::vector<uint32_t> checksums;
  std::string unchecked;
  // It says why the slab is not pinned.
  std::string unpinned;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_SESSION_DEVICE_MEMORY_H_
