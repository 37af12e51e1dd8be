#include "python/native/device_staging.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <system_error>
#include <thread>
#include <utility>

#include "common/gpu/device_core.h"
#include "python/native/overlap_run.h"

namespace cairn {
namespace {

DeviceOutcome Stalled() { return {.kind = DeviceOutcome::kStalled, .text = "the GPU's driver did not answer in time"}; }

}  // namespace

DeviceStaging::DeviceStaging(const GpuDriver& driver, int64_t slot_bytes)
    : core_(std::make_shared<DeviceCore>(driver, slot_bytes)) {}

DeviceStaging::~DeviceStaging() {
  core_->abandoned = true;
  Run(kCloseSeconds, [](DeviceCore& core) {
    core.Close();
    return DeviceOutcome();
  });
}

bool DeviceStaging::Start(std::function<void(DeviceCore&)> work, DeviceOutcome* outcome) {
  if (core_->busy.exchange(true)) {
    *outcome = Stalled();
    return false;
  }
  try {
    std::thread([core = core_, work = std::move(work)] {
      work(*core);
      // Its owner went while it hung.
      if (core->abandoned && !core->busy.exchange(true)) core->Close();
    }).detach();
  } catch (const std::system_error&) {
    core_->busy = false;
    *outcome = {.kind = DeviceOutcome::kDriverFailed, .text = "the system refuses a thread"};
    return false;
  }
  return true;
}

DeviceOutcome DeviceStaging::Run(double seconds, std::function<DeviceOutcome(DeviceCore&)> work) {
  auto promise = std::make_shared<std::promise<DeviceOutcome>>();
  std::future<DeviceOutcome> done = promise->get_future();
  DeviceOutcome refused;
  const auto run = [promise, work = std::move(work)](DeviceCore& core) {
    DeviceOutcome outcome = work(core);
    core.busy = false;
    promise->set_value(std::move(outcome));
  };
  if (!Start(run, &refused)) return refused;
  const auto wait = std::chrono::duration<double>(std::clamp(seconds, 0.0, 1e8));
  return done.wait_for(wait) == std::future_status::ready ? done.get() : Stalled();
}

std::shared_ptr<OverlapState> DeviceStaging::Overlap(OverlapRequest request, double seconds, DeviceOutcome* outcome) {
  auto state = std::make_shared<OverlapState>();
  const auto run = [state, request = std::move(request)](DeviceCore& core) {
    DeviceOutcome ended = RunOverlap(core, request, *state);
    core.busy = false;
    state->End(std::move(ended));
  };
  if (Start(run, outcome) && !state->AwaitBegun(seconds, outcome)) *outcome = Stalled();
  return state;
}

DeviceOutcome DeviceStaging::Pin(int device, void* memory, int64_t bytes, int64_t piece_bytes, double seconds) {
  return Run(seconds, [=](DeviceCore& core) -> DeviceOutcome {
    try {
      const CurrentContext current(core.driver, core.Device(device));
      core.pinned.Pin(static_cast<char*>(memory), bytes, piece_bytes);
      core.pin_failure.clear();
    } catch (const DriverFailure& failure) {
      core.pin_failure = failure.text;
      return FailedBy(failure);
    }
    return {.bytes = bytes};
  });
}

DeviceOutcome DeviceStaging::Unpin(void* memory, double seconds) {
  return Run(seconds, [=](DeviceCore& core) -> DeviceOutcome {
    if (core.pinned.empty()) return {};
    try {
      const CurrentContext current(core.driver, *core.devices.begin()->second);
      core.pinned.Unpin(static_cast<char*>(memory));
    } catch (const DriverFailure& failure) {
      return FailedBy(failure);
    }
    return {};
  });
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

bool DeviceStaging::busy() const { return core_->busy; }

int64_t DeviceStaging::pinned_bytes() const {
  return core_->pinned.bytes() + core_->ring.pinned_bytes() + core_->digest_pinned_bytes;
}

}  // namespace cairn
