// The work of DeviceStaging, on its thread. A run is one call of DeviceStaging; there is one at a time.
#ifndef CAIRN_GPU_COPY_DEVICE_CORE_H_
#define CAIRN_GPU_COPY_DEVICE_CORE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/tensor/fingerprint.h"
#include "gpu/copy/device_context.h"
#include "gpu/copy/device_digest.h"
#include "gpu/copy/shared_blocks.h"
#include "gpu/copy/staged_copy.h"
#include "gpu/driver/driver.h"

namespace cairn {

// Returns the size of the device memory that a copy spans, from its address on; 0 if it copies nothing. If the size
// does not fit into 64 bits, returns the largest number.
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

  // These do the work of the methods of DeviceStaging with the same names.
  DeviceOutcome Copy(const std::vector<StagedCopy>& copies, int64_t threads);
  DeviceOutcome Checksum(const std::vector<StagedCopy>& copies, std::vector<uint32_t>& checksums);
  DeviceOutcome Fingerprint(const std::vector<StagedCopy>& copies, std::vector<FingerprintPart>& parts);
  DeviceOutcome FindBlocks(const std::vector<StagedCopy>& copies, std::vector<SharedBlock>& blocks);
  void Close();

  // The following are steps of a run. They throw DriverFailure.

  DeviceContext& Device(int ordinal);
  // Returns the part of each device; empty if there is nothing to copy or a copy is wrong. Then `outcome` says what is
  // wrong.
  std::map<int, Job> JobsOf(const std::vector<StagedCopy>& copies, DeviceOutcome& outcome);
  // Returns whether a stream captures a graph. The driver calls of a copy would make the capture fail.
  bool IsCapturing(uint64_t stream) const;
  // Makes Cairn's stream of the device wait for the trainer's work in `job.streams` so far.
  void Order(const Job& job);
  // Chooses the path, and makes the ring if the path needs it. Returns whether copies may go straight between the
  // device and the host's side.
  bool MayCopyStraight(const std::vector<StagedCopy>& copies, DeviceOutcome& outcome);
  // Enqueues a copy straight to the host in `stream`. Returns false, and does nothing, if the elements are not packed
  // on the host in the order of the device's memory.
  bool CopyStraight(const StagedCopy& copy, cuda::Stream stream, DeviceOutcome& outcome);
  // Records in `outcome` that copy `index` takes the ring although its memory is pinned.
  void Reorder(size_t index, DeviceOutcome& outcome);
  void CopyThroughRing(const std::vector<StagedCopy>& copies, const std::vector<size_t>& indices,
                       const DeviceContext& device, int64_t threads, DeviceOutcome& outcome);
  // Moves the packed arrays of one device through the ring. `take` gets their bytes on the host, in order.
  void ReadThroughRing(const std::vector<StagedCopy>& copies, const Job& job,
                       const std::function<void(size_t index, const char* bytes, size_t size)>& take,
                       DeviceOutcome& outcome);
  // Waits for all enqueued copies after a failure, so that the caller may free its memory.
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
