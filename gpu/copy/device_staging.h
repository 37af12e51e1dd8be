// Copies between a GPU's memory and the host's, for one client: on streams of its own, through pinned memory if it can.
#ifndef CAIRN_GPU_COPY_DEVICE_STAGING_H_
#define CAIRN_GPU_COPY_DEVICE_STAGING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/file/unique_fd.h"
#include "gpu/copy/overlap_state.h"
#include "gpu/copy/shared_blocks.h"
#include "gpu/copy/staged_copy.h"
#include "gpu/driver/driver.h"

namespace cairn {

class DeviceCore;

// Does one thing at a time, in a thread of its own, so that a driver that hangs keeps nobody longer than the given
// number of seconds. Until such a call ends, everything else is kStalled at once. Thread-safe.
class DeviceStaging {
 public:
  // `driver` must outlive it. Each of the ring's two buffers has `slot_bytes` bytes.
  DeviceStaging(const GpuDriver& driver, int64_t slot_bytes);
  // As Close().
  ~DeviceStaging();
  DeviceStaging(const DeviceStaging&) = delete;
  DeviceStaging& operator=(const DeviceStaging&) = delete;

  // Finds the device of the first of these addresses that is on one; -1 if none is.
  DeviceOutcome Locate(std::vector<uint64_t> addresses, double seconds, int* device);

  // Pins host memory in pieces, because the driver stalls its other calls while it pins one, and refuses huge ones. On
  // failure nothing is pinned, and later copies say why they had to take the ring. Memory that has become kStalled may
  // be pinned later all the same, so it must be given to Release() in every case.
  //
  // `number` is not zero, and no other memory has it before or after.
  DeviceOutcome Pin(uint64_t number, int device, void* memory, int64_t bytes, int64_t piece_bytes, double seconds);
  // Unpins memory, and then calls `unmap`. If something else runs, both are done as soon as that has ended; the memory
  // must stay until then. Waits `seconds` at most. May be called after Close().
  void Release(uint64_t number, std::function<void()> unmap, double seconds);
  // Returns whether there is memory that Release() has not unmapped yet.
  bool releasing() const;

  // Makes the copies, which all go the same way, and waits for them. `threads` copy on the host.
  DeviceOutcome Copy(std::vector<StagedCopy> copies, int64_t threads, double seconds);

  // Begins a save whose copies go on behind the trainer's back, and returns when all arrays are as if they were copied,
  // if updates wait for OverlapState::Guard. That is kept by the returned state, which outlives this object if need be;
  // until it has ended, everything else is kStalled. The outcome says whether it has begun: kDone, or why not.
  std::shared_ptr<OverlapState> Overlap(OverlapRequest request, double seconds, DeviceOutcome* outcome);

  // Computes the CRC32C of each array, in the order of the device's memory. The targets of the copies are not used.
  DeviceOutcome Checksum(std::vector<StagedCopy> copies, double seconds, std::vector<uint32_t>* checksums);

  // Returns whether something from before still runs.
  bool busy() const;
  // Says what the driver has not done yet: "cuMemcpyDtoHAsync has not returned for 1.5 s", or that copies have not
  // ended; "" if nothing runs.
  std::string Waiting() const;
  // Returns how much memory is pinned now, with the ring's and that of sums.
  int64_t pinned_bytes() const;

  // Waits until the streams of these arrays have done what they were given, and finds the allocations that the arrays
  // are in (see SharedBlocks). The host's side of the copies is not looked at.
  DeviceOutcome FindBlocks(std::vector<StagedCopy> arrays, double seconds, std::vector<SharedBlock>* blocks);
  // Makes descriptors of allocations that were found last.
  DeviceOutcome Export(std::vector<cuda::AllocationHandle> handles, double seconds, std::vector<UniqueFd>* files);
  // Lets go of the allocations that were found last.
  DeviceOutcome ForgetBlocks(double seconds);

  // Gives up all memory and streams, if nothing hangs; otherwise that is done when it goes on. Waits `kCloseSeconds` at
  // most. Returns whether all is given up.
  bool Close();

  static constexpr double kCloseSeconds = 5;

 private:
  struct Shared;
  // Does what a run does. `ready` is not kDone if the thread cannot call the driver.
  using Work = std::function<void(DeviceCore&, const DeviceOutcome& ready)>;

  // Runs `work` in a thread, and `ended` when something else may begin; either may be null. Returns false if something
  // from before still runs, or if there is no thread; `refused` says which.
  bool Start(Work work, std::function<void()> ended, DeviceOutcome* refused);
  // Lets a thread do what is to be done at the end of a run. Waits for that, but not for what runs itself.
  void AwaitEndOfRun(double seconds);
  DeviceOutcome Run(double seconds, std::function<DeviceOutcome(DeviceCore&)> work);
  DeviceOutcome Stalled() const;

  // A thread that hangs keeps it.
  const std::shared_ptr<Shared> shared_;
};

}  // namespace cairn

#endif  // CAIRN_GPU_COPY_DEVICE_STAGING_H_
