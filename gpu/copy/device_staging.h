// Copies between GPUs and host memory, for one client, on streams of its own, through pinned memory if possible.
#ifndef CAIRN_GPU_COPY_DEVICE_STAGING_H_
#define CAIRN_GPU_COPY_DEVICE_STAGING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/file/unique_fd.h"
#include "common/tensor/fingerprint.h"
#include "gpu/copy/overlap_state.h"
#include "gpu/copy/shared_blocks.h"
#include "gpu/copy/staged_copy.h"
#include "gpu/driver/driver.h"

namespace cairn {

class DeviceCore;

// Runs one call at a time, on a thread of its own. If the driver hangs, a call returns kStalled after its `seconds`,
// and its work goes on in that thread. Until this work ends, all other calls return kStalled at once. Thread-safe.
class DeviceStaging {
 public:
  // `driver` must outlive it. Each of the ring's two buffers has `slot_bytes` bytes.
  DeviceStaging(const GpuDriver& driver, int64_t slot_bytes);
  ~DeviceStaging();
  DeviceStaging(const DeviceStaging&) = delete;
  DeviceStaging& operator=(const DeviceStaging&) = delete;

  // Finds the first of these addresses that is device memory, and sets `device` to its device; to -1 if there is none.
  DeviceOutcome Locate(std::vector<uint64_t> addresses, double seconds, int* device);

  // Pins host memory. It pins piece by piece, because the driver's other calls wait while it pins a piece, and it
  // refuses huge pieces. On failure nothing is pinned, and later copies say in their outcome why they took the ring.
  // After kStalled the memory may still become pinned later, so the caller must call Release() for it in every case.
  //
  // `number` identifies the memory. It must not be zero, and must never be used for other memory.
  DeviceOutcome Pin(uint64_t number, int device, void* memory, int64_t bytes, int64_t piece_bytes, double seconds);
  // Unpins memory, then calls `unmap`. If another call's work still runs, both happen when it has ended; the memory
  // must stay mapped until then. Waits `seconds` at most. May be called after Close().
  void Release(uint64_t number, std::function<void()> unmap, double seconds);
  // Returns whether a Release() has not called its `unmap` yet.
  bool releasing() const;

  // Executes the copies and waits for them, at most `seconds`. All copies must have the same direction. `threads`: the
  // number of threads that copy on the host, if the ring is used.
  DeviceOutcome Copy(std::vector<StagedCopy> copies, int64_t threads, double seconds);

  // Begins a save whose copies continue while the trainer goes on. When it returns, the trainer may change the arrays,
  // if it calls Guard of the returned state before each update. The state may outlive this object. Until
  // OverlapState::AwaitEnd returns true, all other calls return kStalled. `outcome` says whether the save has begun:
  // kDone, or why not.
  std::shared_ptr<OverlapState> Overlap(OverlapRequest request, double seconds, DeviceOutcome* outcome);

  // Computes the CRC32C of each copy's device array, over its elements in the order of the device's memory. The bytes
  // pass through the ring, and the host computes. The targets of the copies are not used.
  DeviceOutcome Checksum(std::vector<StagedCopy> copies, double seconds, std::vector<uint32_t>* checksums);

  // Computes the parts of fingerprints that each copy's device array makes, which must be packed. `parts` has for each
  // copy its place in its tensor, and gets its value. The device computes; if it cannot, which `unchecked` of the
  // outcome says, the bytes pass through the ring, and the host computes. The targets of the copies are not used.
  DeviceOutcome Fingerprint(std::vector<StagedCopy> copies, double seconds, std::vector<FingerprintPart>* parts);

  // Returns whether the work of an earlier call still runs.
  bool busy() const;
  // Says what the running work waits for: "cuMemcpyDtoHAsync has not returned for 1.5 s", or that copies have not
  // ended; "" if nothing runs.
  std::string Waiting() const;
  // Returns how many bytes are pinned now, including the ring and the buffers for checksums.
  int64_t pinned_bytes() const;

  // Waits until the streams of these arrays have executed all enqueued work, and finds the allocations that contain the
  // arrays (see SharedBlocks). The host's side of the copies is not used.
  DeviceOutcome FindBlocks(std::vector<StagedCopy> arrays, double seconds, std::vector<SharedBlock>* blocks);
  // Makes descriptors for allocations that the last FindBlocks has found.
  DeviceOutcome Export(std::vector<cuda::AllocationHandle> handles, double seconds, std::vector<UniqueFd>* files);
  // Releases the allocations that the last FindBlocks has found.
  DeviceOutcome ForgetBlocks(double seconds);

  // Frees all memory and streams. If the driver hangs, this happens when it continues. Waits `kCloseSeconds` at most.
  // Returns whether everything is freed.
  bool Close();

  static constexpr double kCloseSeconds = 5;

 private:
  struct Shared;
  // The work of a run. `ready` is not kDone if the thread cannot call the driver.
  using Work = std::function<void(DeviceCore&, const DeviceOutcome& ready)>;

  // Runs `work` on a thread, and then `ended`, when the next run may begin; both may be null. Returns false if an
  // earlier run has not ended, or if the system refuses a thread; `refused` says which.
  bool Start(Work work, std::function<void()> ended, DeviceOutcome* refused);
  // Makes sure that releases and Close() are executed: at the end of the run that runs now, or at once. Waits for them
  // at most `seconds`, but does not wait for the run itself.
  void AwaitEndOfRun(double seconds);
  DeviceOutcome Run(double seconds, std::function<DeviceOutcome(DeviceCore&)> work);
  DeviceOutcome Stalled() const;

  // Shared with the thread, which may hang and outlive this object.
  const std::shared_ptr<Shared> shared_;
};

}  // namespace cairn

#endif  // CAIRN_GPU_COPY_DEVICE_STAGING_H_
