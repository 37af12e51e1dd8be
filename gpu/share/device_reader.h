// Reads memory of the trainer's devices, within cairn-gpu-worker: takes part in its allocations, and copies from them
// into the agent's slab.
#ifndef CAIRN_GPU_SHARE_DEVICE_READER_H_
#define CAIRN_GPU_SHARE_DEVICE_READER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/file/unique_fd.h"
#include "gpu/copy/device_context.h"
#include "gpu/copy/device_digest.h"
#include "gpu/driver/driver.h"
#include "gpu/share/device_worker.pb.h"

namespace cairn {

// Requests are not trusted: it never reads outside of a block, nor writes outside of the slab. Blocks are mapped
// so that the device itself refuses writes. Calls of the driver may hang; the agent then ends the process. Not
// thread-safe.
class DeviceReader {
 public:
  // `library`: as for GpuDriver::Open. It is opened by the first request.
  explicit DeviceReader(std::string library) : library_(std::move(library)) {}
  // Gives everything back, unless a copy has failed: then that is left to the end of the process, because the device
  // may still write to the slab.
  ~DeviceReader();
  DeviceReader(const DeviceReader&) = delete;
  DeviceReader& operator=(const DeviceReader&) = delete;

  // Answers one request. After an error nothing may be asked any more.
  // INVALID_ARGUMENT (BAD_REQUEST): it leaves its bounds. UNAVAILABLE (DEVICE_ERROR): a copy has failed.
  absl::StatusOr<worker::DeviceEvent> Handle(const worker::DeviceRequest& request, const UniqueFd& descriptor);

 private:
  struct Block {
    int ordinal = 0;
    cuda::DevicePointer address = 0;
    uint64_t bytes = 0;
    bool ipc = false;
  };
  struct Slab {
    uint64_t number = 0;  // for PinnedMemory
    int ordinal = 0;      // of the device for which it is pinned
    char* data = nullptr;
    uint64_t bytes = 0;
  };

  // These throw DriverFailure.
  void Open();
  DeviceContext& Device(int ordinal);
  int OrdinalOf(const std::string& uuid);
  Block ImportDescriptor(int descriptor, uint64_t bytes, bool fabric);
  Block ImportIpc(const std::string& handle, const std::string& uuid, uint64_t bytes);
  void Map(cuda::AllocationHandle handle, Block& block);

  absl::StatusOr<worker::DeviceEvent> Import(const worker::ImportBlock& request, const UniqueFd& descriptor);
  absl::StatusOr<worker::DeviceEvent> Drop(const worker::DropBlocks& request);
  absl::StatusOr<worker::DeviceEvent> MapSlab(const worker::MapSlab& request, const UniqueFd& descriptor);
  absl::StatusOr<worker::DeviceEvent> Copy(const worker::CopyToSlab& request);
  absl::Status Check(const worker::CopyToSlab& request) const;

  using Parts = std::vector<int>;  // positions in a request
  // Lets the devices begin to sum all parts. Returns why they cannot; empty if they do.
  std::string BeginSums(const worker::CopyToSlab& request, const std::map<int, Parts>& parts);
  void CopyParts(const worker::CopyToSlab& request, const Parts& parts, const DeviceContext& device);

  // Makes the calls that give memory back, in the context of its device.
  template <typename Calls>
  void GiveBack(int ordinal, const Calls& calls);
  void Release(const Block& block);
  void UnmapSlab();

  const std::string library_;
  const GpuDriver* driver_ = nullptr;
  std::map<int, std::unique_ptr<DeviceContext>> devices_;
  std::map<int, DeviceDigest> digests_;
  std::unique_ptr<PinnedMemory> pinned_;
  std::map<uint64_t, Block> blocks_;
  Slab slab_;
  bool failed_ = false;
};

}  // namespace cairn

#endif  // CAIRN_GPU_SHARE_DEVICE_READER_H_
