// Reads the trainer's device memory in cairn-gpu-worker: imports allocations, and copies them into the agent's slab.
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

// A block is an imported allocation. Requests are untrusted: it never reads outside of a block or writes outside of the
// slab. Blocks are mapped read-only for the device. Driver calls may hang; the agent then ends the process. Not
// thread-safe.
class DeviceReader {
 public:
  // `library` is as for GpuDriver::Open. The first request opens it.
  explicit DeviceReader(std::string library) : library_(std::move(library)) {}
  // Releases blocks and slab. If a copy has failed, it releases nothing, because the device may still write to the
  // slab; the end of the process does it.
  ~DeviceReader();
  DeviceReader(const DeviceReader&) = delete;
  DeviceReader& operator=(const DeviceReader&) = delete;

  // Answers one request. Must not be called again after an error. INVALID_ARGUMENT (BAD_REQUEST): the request exceeds
  // its bounds. UNAVAILABLE (DEVICE_ERROR): a copy has failed.
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
  // Starts the computation of all parts' checksums on the devices. Returns why that is not possible; empty on success.
  std::string BeginSums(const worker::CopyToSlab& request, const std::map<int, Parts>& parts);
  void CopyParts(const worker::CopyToSlab& request, const Parts& parts, const DeviceContext& device);

  // Calls `calls`, which release memory, in the context of the memory's device.
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
