#include "gpu/copy/device_staging.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <future>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "common/base/mutex.h"
#include "gpu/copy/device_core.h"
#include "gpu/copy/device_ranges.h"
#include "gpu/copy/overlap_run.h"
#include "gpu/driver/deadline.h"

namespace cairn {

struct DeviceStaging::Shared {
  Shared(const GpuDriver& driver, int64_t slot_bytes) : core(driver, slot_bytes) {}

  // Memory that must be unpinned and unmapped.
  struct Release {
    uint64_t number = 0;
    std::function<void()> unmap;
  };

  // Executes releases and Close() after a run, on the run's thread.
  void EndRun() ABSL_LOCKS_EXCLUDED(mutex);
  void Unpin(uint64_t number);

  Mutex mutex;
  CondVar changed;
  bool busy ABSL_GUARDED_BY(mutex) = false;     // a run's thread exists
  bool working ABSL_GUARDED_BY(mutex) = false;  // the run's work has not ended
  bool closing ABSL_GUARDED_BY(mutex) = false;
  bool closed ABSL_GUARDED_BY(mutex) = false;
  std::deque<Release> releases ABSL_GUARDED_BY(mutex);
  // Used by one thread at a time: the run's thread while `busy` is true.
  DeviceCore core;
  cuda::CallWatch watch;
};

void DeviceStaging::Shared::EndRun() {
  MutexLock lock(mutex);
  working = false;
  while (!releases.empty() || (closing && !closed)) {
    if (!releases.empty()) {
      const Release next = releases.front();
      mutex.Unlock();
      Unpin(next.number);
      next.unmap();
      mutex.Lock();
      releases.pop_front();
    } else {
      mutex.Unlock();
      core.Close();
      mutex.Lock();
      closed = true;
    }
  }
  busy = false;
  changed.NotifyAll();
}

void DeviceStaging::Shared::Unpin(uint64_t number) {
  if (core.pinned.empty()) return core.pinned.Unpin(number);
  try {
    const CurrentContext current(core.driver, *core.devices.begin()->second);
    core.pinned.Unpin(number);
  } catch (const DriverFailure&) {
    core.pinned.Unpin(number);  // a broken context pins nothing any more
  }
}

DeviceStaging::DeviceStaging(const GpuDriver& driver, int64_t slot_bytes)
    : shared_(std::make_shared<Shared>(driver, slot_bytes)) {}

DeviceStaging::~DeviceStaging() { Close(); }

bool DeviceStaging::Close() {
  {
    MutexLock lock(shared_->mutex);
    shared_->closing = true;
  }
  AwaitEndOfRun(kCloseSeconds);
  MutexLock lock(shared_->mutex);
  return shared_->closed;
}

bool DeviceStaging::Start(Work work, std::function<void()> ended, DeviceOutcome* refused) {
  bool was_busy = false;
  {
    MutexLock lock(shared_->mutex);
    was_busy = std::exchange(shared_->busy, true);
    if (!was_busy) shared_->working = work != nullptr;
  }
  if (was_busy) {
    *refused = Stalled();
    return false;
  }
  try {
    std::thread([shared = shared_, work = std::move(work), ended = std::move(ended)] {
      const cuda::CallWatch::Here here(shared->watch);
      DeviceOutcome ready;
      try {
        RelaxCapture(shared->core.driver);
      } catch (const DriverFailure& failure) {
        ready = FailedBy(failure);
      }
      if (work != nullptr) work(shared->core, ready);
      shared->EndRun();
      if (ended != nullptr) ended();
    }).detach();
  } catch (const std::system_error&) {
    MutexLock lock(shared_->mutex);
    shared_->busy = shared_->working = false;
    *refused = {.kind = DeviceOutcome::kDriverFailed, .text = "the system refuses a thread"};
    return false;
  }
  return true;
}

DeviceOutcome DeviceStaging::Run(double seconds, std::function<DeviceOutcome(DeviceCore&)> work) {
  struct Result {
    std::promise<void> ended;
    DeviceOutcome outcome;
  };
  auto result = std::make_shared<Result>();
  std::future<void> ended = result->ended.get_future();
  DeviceOutcome refused;
  const auto run = [result, work = std::move(work)](DeviceCore& core, const DeviceOutcome& ready) {
    result->outcome = ready.kind == DeviceOutcome::kDone ? work(core) : ready;
  };
  if (!Start(run, [result] { result->ended.set_value(); }, &refused)) return refused;
  const auto wait = std::chrono::duration<double>(std::clamp(seconds, 0.0, 1e8));
  return ended.wait_for(wait) == std::future_status::ready ? result->outcome : Stalled();
}

DeviceOutcome DeviceStaging::Stalled() const {
  return {.kind = DeviceOutcome::kStalled, .text = "the GPU's driver did not answer in time: " + Waiting()};
}

std::string DeviceStaging::Waiting() const {
  if (!busy()) return "";
  const std::string hanging = shared_->watch.Hanging();
  return hanging.empty() ? "the copies have not ended" : hanging;
}

std::shared_ptr<OverlapState> DeviceStaging::Overlap(OverlapRequest request, double seconds, DeviceOutcome* outcome) {
  auto state = std::make_shared<OverlapState>();
  auto last = std::make_shared<DeviceOutcome>();
  const auto run = [state, last, request = std::move(request)](DeviceCore& core, const DeviceOutcome& ready) {
    *last = ready.kind == DeviceOutcome::kDone ? RunOverlap(core, request, *state) : ready;
  };
  const auto ended = [state, last] { state->End(std::move(*last)); };
  if (Start(run, ended, outcome) && !state->AwaitBegun(seconds, outcome)) *outcome = Stalled();
  return state;
}

DeviceOutcome DeviceStaging::Locate(std::vector<uint64_t> addresses, double seconds, int* device) {
  auto found = std::make_shared<int>(-1);
  DeviceOutcome outcome = Run(seconds, [found, addresses = std::move(addresses)](DeviceCore& core) -> DeviceOutcome {
    try {
      for (const uint64_t address : addresses) {
        const std::optional<int> ordinal = OrdinalOf(core.driver, address);
        if (!ordinal) continue;
        *found = *ordinal;
        break;
      }
    } catch (const DriverFailure& failure) {
      return FailedBy(failure);
    }
    return {};
  });
  *device = outcome.kind == DeviceOutcome::kDone ? *found : -1;
  return outcome;
}

DeviceOutcome DeviceStaging::Pin(uint64_t number, int device, void* memory, int64_t bytes, int64_t piece_bytes,
                                 double seconds) {
  return Run(seconds, [=](DeviceCore& core) -> DeviceOutcome {
    try {
      const CurrentContext current(core.driver, core.Device(device));
      core.pinned.Pin(number, static_cast<char*>(memory), bytes, piece_bytes);
    } catch (const DriverFailure& failure) {
      return FailedBy(failure);
    }
    return {.bytes = bytes};
  });
}

void DeviceStaging::Release(uint64_t number, std::function<void()> unmap, double seconds) {
  {
    MutexLock lock(shared_->mutex);
    shared_->releases.push_back({.number = number, .unmap = std::move(unmap)});
  }
  AwaitEndOfRun(seconds);
}

void DeviceStaging::AwaitEndOfRun(double seconds) {
  DeviceOutcome refused;
  Start(nullptr, nullptr, &refused);  // if a run has not ended, its own thread does this at its end
  const Deadline deadline(seconds);
  MutexLock lock(shared_->mutex);
  while (shared_->busy && !shared_->working && !deadline.passed()) {
    shared_->changed.WaitFor(shared_->mutex, deadline.left());
  }
}

bool DeviceStaging::releasing() const {
  MutexLock lock(shared_->mutex);
  return !shared_->releases.empty();
}

DeviceOutcome DeviceStaging::Copy(std::vector<StagedCopy> copies, int64_t threads, double seconds) {
  if (copies.empty()) return {};
  return Run(seconds, [copies = std::move(copies), threads](DeviceCore& core) { return core.Copy(copies, threads); });
}

DeviceOutcome DeviceStaging::Checksum(std::vector<StagedCopy> copies, double seconds,
                                      std::vector<uint32_t>* checksums) {
  auto result = std::make_shared<std::vector<uint32_t>>();
  DeviceOutcome outcome =
      Run(seconds, [copies = std::move(copies), result](DeviceCore& core) { return core.Checksum(copies, *result); });
  if (outcome.kind == DeviceOutcome::kDone) *checksums = *result;
  return outcome;
}

DeviceOutcome DeviceStaging::Fingerprint(std::vector<StagedCopy> copies, double seconds,
                                         std::vector<FingerprintPart>* parts) {
  auto result = std::make_shared<std::vector<FingerprintPart>>(std::move(*parts));
  DeviceOutcome outcome = Run(
      seconds, [copies = std::move(copies), result](DeviceCore& core) { return core.Fingerprint(copies, *result); });
  if (outcome.kind == DeviceOutcome::kDone) *parts = std::move(*result);
  return outcome;
}

DeviceOutcome DeviceStaging::FindBlocks(std::vector<StagedCopy> arrays, double seconds,
                                        std::vector<SharedBlock>* blocks) {
  auto found = std::make_shared<std::vector<SharedBlock>>();
  DeviceOutcome outcome =
      Run(seconds, [arrays = std::move(arrays), found](DeviceCore& core) { return core.FindBlocks(arrays, *found); });
  if (outcome.kind == DeviceOutcome::kDone) *blocks = std::move(*found);
  return outcome;
}

DeviceOutcome DeviceStaging::Export(std::vector<cuda::AllocationHandle> handles, double seconds,
                                    std::vector<UniqueFd>* files) {
  auto made = std::make_shared<std::vector<UniqueFd>>();
  DeviceOutcome outcome = Run(seconds, [handles = std::move(handles), made](DeviceCore& core) -> DeviceOutcome {
    try {
      for (const cuda::AllocationHandle handle : handles) made->push_back(core.shared.Export(handle));
    } catch (const DriverFailure& failure) {
      made->clear();
      return FailedBy(failure);
    }
    return {};
  });
  if (outcome.kind == DeviceOutcome::kDone) *files = std::move(*made);
  return outcome;
}

DeviceOutcome DeviceStaging::ForgetBlocks(double seconds) {
  return Run(seconds, [](DeviceCore& core) -> DeviceOutcome {
    core.shared.Forget();
    return {};
  });
}

bool DeviceStaging::busy() const {
  MutexLock lock(shared_->mutex);
  return shared_->busy;
}

int64_t DeviceStaging::pinned_bytes() const {
  const DeviceCore& core = shared_->core;
  return core.pinned.bytes() + core.ring.pinned_bytes() + core.digest_pinned_bytes;
}

}  // namespace cairn
