// Holds what the thread of a run works with. Only one run at a time uses it.
#ifndef CAIRN_GPU_COPY_DEVICE_CORE_H_
#define CAIRN_GPU_COPY_DEVICE_CORE_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gpu/copy/device_context.h"
#include "gpu/copy/device_digest.h"
#include "gpu/copy/shared_blocks.h"
#include "gpu/copy/staged_copy.h"
#include "gpu/driver/driver.h"

namespace cairn {

// The bytes of the device's memory that a copy touches, from its address on; 0 for none, and as many as there can be if
// 64 bits do not hold them.
int64_t SpanOf(const DeviceCopy& copy);

DeviceOutcome FailedBy(const DriverFailure& failure);

class DeviceCore {
 public:
  DeviceCore(const GpuDriver& given, int64_t slot_bytes)
      : driver(given),
        ring(given, slot_bytes),
        pinned(given),
        shared(given, [this](int ordinal) -> const DeviceContext& { return Device(ordinal); }) {}

  // The part of a run that one device does.
  struct Job {
    DeviceContext* device = nullptr;
    std::vector<size_t> copies;
    std::set<uint64_t> streams;
  };

  // See DeviceStaging.
  DeviceOutcome Copy(const std::vector<StagedCopy>& copies, int64_t threads);
  DeviceOutcome Checksum(const std::vector<StagedCopy>& copies, std::vector<uint32_t>& checksums);
  DeviceOutcome FindBlocks(const std::vector<StagedCopy>& copies, std::vector<SharedBlock>& blocks);
  void Close();

  // These are the steps of runs. Those that return no outcome throw DriverFailure.

  DeviceContext& Device(int ordinal);
  // Says in `outcome` what is wrong with a copy, if something is.
  std::map<int, Job> JobsOf(const std::vector<StagedCopy>& copies, DeviceOutcome& outcome);
  // Returns whether a stream records a graph. The calls that a copy needs would end the recording with an error.
  bool IsCapturing(uint64_t stream) const;
  // Lets our stream wait for what the trainer has enqueued so far.
  void Order(const Job& job);
  // Chooses the path, and makes the ring if that needs it. Returns whether copies go straight to the host's side.
  bool MayCopyStraight(const std::vector<StagedCopy>& copies, DeviceOutcome& outcome);
  // Copies in `stream`. Returns false if the elements are not packed on the host in the order of the device's memory.
  bool CopyStraight(const StagedCopy& copy, cuda::Stream stream, DeviceOutcome& outcome);
  // Says in `outcome` that a copy takes the ring, although the memory is pinned.
  void Reorder(size_t index, DeviceOutcome& outcome);
  void CopyThroughRing(const std::vector<StagedCopy>& copies, const std::vector<size_t>& indices,
                       const DeviceContext& device, int64_t threads, DeviceOutcome& outcome);
  // After a failure: nothing that was enqueued may still move when the caller lets go of its memory.
  void AwaitAll(const std::map<int, Job>& jobs);

  const GpuDriver& driver;
  StagingRing ring;
  PinnedMemory pinned;
  std::map<int, std::unique_ptr<DeviceContext>> devices;
  SharedBlocks shared;
  std::map<int, DeviceDigest> digests;
  std::atomic<int64_t> digest_pinned_bytes{0};
};

}  // namespace cairn

#endif  // CAIRN_GPU_COPY_DEVICE_CORE_H_
