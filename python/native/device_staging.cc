#include "python/native/device_staging.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "common/base/crc32c.h"
#include "python/native/device_context.h"
#include "python/native/parallel_copy.h"
#include "python/native/ring_run.h"

namespace cairn {
namespace {

// The bytes of the device's memory that a copy touches, from its address on; 0 for none.
int64_t SpanOf(const DeviceCopy& copy) {
  int64_t span = copy.device_element_bytes();
  for (const TiledCopy::Dimension& d : copy.copy.dimensions) {
    if (d.extent == 0) return 0;
    span += (d.extent - 1) * (copy.to_host ? d.source_stride : d.target_stride);
  }
  return span;
}

int64_t HostSpanOf(const DeviceCopy& copy) {
  int64_t span = copy.copy.target_element_bytes();
  for (const TiledCopy::Dimension& d : copy.copy.dimensions) span += (d.extent - 1) * d.target_stride;
  return span;
}

}  // namespace

// What the thread of a run works with. Only one run at a time uses it.
struct DeviceStaging::Core {
  Core(const GpuDriver& given, int64_t slot_bytes) : driver(given), ring(given, slot_bytes), pinned(given) {}

  // What one device has to do in a run.
  struct Job {
    DeviceContext* device = nullptr;
    std::vector<size_t> copies;
    std::set<uint64_t> streams;
  };

  DeviceContext& Device(int ordinal) {
    std::unique_ptr<DeviceContext>& device = devices[ordinal];
    if (device == nullptr) device = std::make_unique<DeviceContext>(driver, ordinal);
    return *device;
  }

  DeviceOutcome Failed(const DriverFailure& failure) const {
    return {.kind = DeviceOutcome::kDriverFailed, .text = failure.text};
  }

  // Returns nothing if the address is no device's.
  std::optional<int> OrdinalOf(uint64_t address) const {
    int type = 0, ordinal = 0;
    const auto& call = driver.call();
    const cuda::Result result = call.pointer_get_attribute(&type, cuda::kPointerMemoryType, address);
    if (result == cuda::kInvalidValue || (result == cuda::kSuccess && type != cuda::kMemoryTypeDevice)) {
      return std::nullopt;
    }
    Require(driver, result, "cuPointerGetAttribute");
    Require(driver, call.pointer_get_attribute(&ordinal, cuda::kPointerDeviceOrdinal, address),
            "cuPointerGetAttribute");
    return ordinal;
  }

  // Says in `outcome` what is wrong with a copy, if something is.
  std::map<int, Job> JobsOf(const std::vector<StagedCopy>& copies, DeviceOutcome& outcome) {
    std::map<int, Job> jobs;
    for (size_t i = 0; i < copies.size(); ++i) {
      const int64_t span = SpanOf(copies[i].copy);
      if (span == 0) continue;
      const auto first = OrdinalOf(copies[i].copy.device);
      const auto last = OrdinalOf(copies[i].copy.device + static_cast<uint64_t>(span - 1));
      outcome.index = static_cast<int64_t>(i);
      outcome.kind = !first || !last ? DeviceOutcome::kNotOnDevice : DeviceOutcome::kManyDevices;
      if (!first || first != last) return {};
      jobs[*first].copies.push_back(i);
      jobs[*first].streams.insert(copies[i].stream);
    }
    outcome.kind = DeviceOutcome::kDone;
    outcome.index = -1;
    for (auto& [ordinal, job] : jobs) job.device = &Device(ordinal);
    return jobs;
  }

  // Lets our stream wait for what the trainer has enqueued so far.
  void Order(const Job& job) {
    for (const uint64_t stream : job.streams) {
      DeviceEvent event(driver);
      event.Record(reinterpret_cast<cuda::Stream>(stream));
      Require(driver, driver.call().stream_wait_event(job.device->stream(), event.event(), 0), "cuStreamWaitEvent");
    }
  }

  // Chooses the path, and makes the ring if that needs it.
  bool MayCopyStraight(const std::vector<StagedCopy>& copies, DeviceOutcome& outcome) {
    const bool to_host = copies.front().copy.to_host;
    if (to_host && std::all_of(copies.begin(), copies.end(), [&](const StagedCopy& each) {
          return SpanOf(each.copy) == 0 || pinned.Holds(each.copy.copy.target, HostSpanOf(each.copy));
        })) {
      return true;
    }
    outcome.path = DevicePath::kPinnedRing;
    if (to_host) outcome.fallback = pin_failure.empty() ? "the memory is not pinned" : pin_failure;
    const std::string& why = ring.Make();
    if (why.empty()) return false;
    outcome.path = DevicePath::kPageable;
    outcome.fallback += (outcome.fallback.empty() ? "" : "; ") + why;
    return to_host;
  }

  DeviceOutcome Copy(const std::vector<StagedCopy>& copies, int64_t threads) {
    DeviceOutcome outcome;
    std::map<int, Job> jobs;
    try {
      jobs = JobsOf(copies, outcome);
      if (jobs.empty()) return outcome;
      const CurrentContext any(driver, *jobs.begin()->second.device);
      const bool straight = MayCopyStraight(copies, outcome);
      // All devices are busy before the host waits for one.
      std::map<int, std::vector<size_t>> through_ring;
      for (auto& [ordinal, job] : jobs) {
        const CurrentContext current(driver, *job.device);
        Order(job);
        for (const size_t index : job.copies) {
          if (!straight || !CopyStraight(copies[index].copy, *job.device, outcome)) {
            through_ring[ordinal].push_back(index);
          }
        }
      }
      for (const auto& [ordinal, indices] : through_ring) {
        CopyThroughRing(copies, indices, Device(ordinal), threads, outcome);
      }
      for (const auto& [ordinal, job] : jobs) {
        const CurrentContext current(driver, *job.device);
        DeviceEvent done(driver);
        done.Record(job.device->stream());
        done.Await();
      }
    } catch (const DriverFailure& failure) {
      AwaitAll(jobs);
      return Failed(failure);
    }
    return outcome;
  }

  // Returns false if the elements are not packed on the host in the order of the device's memory.
  bool CopyStraight(const DeviceCopy& copy, const DeviceContext& device, DeviceOutcome& outcome) {
    const std::vector<DevicePart> parts = PartsOf(copy, std::numeric_limits<int64_t>::max());
    if (parts.empty() || !parts.front().direct) return parts.empty();
    outcome.calls += EnqueueRows(driver, device.stream(), parts.front().rows, true, parts.front().host.target);
    outcome.bytes += parts.front().bytes;
    return true;
  }

  void CopyThroughRing(const std::vector<StagedCopy>& copies, const std::vector<size_t>& indices,
                       const DeviceContext& device, int64_t threads, DeviceOutcome& outcome) {
    const CurrentContext current(driver, device);
    ring.Make();
    RingRun run(driver, device, ring, copies.front().copy.to_host, [&](RingRun::Batch& batch) {
      std::vector<TiledCopy> host;
      for (auto& [index, part] : batch.parts) host.push_back(part.host);
      ExecuteAll(std::move(host), threads);
    });
    for (const size_t index : indices) {
      for (DevicePart& part : PartsOf(copies[index].copy, ring.slot_bytes())) {
        outcome.bytes += part.bytes;
        run.Add(index, std::move(part));
      }
    }
    run.Finish();
    outcome.calls += run.calls();
  }

  DeviceOutcome Checksum(const std::vector<StagedCopy>& copies, std::vector<uint32_t>& checksums) {
    DeviceOutcome outcome = {.path = DevicePath::kPinnedRing};
    checksums.assign(copies.size(), 0);
    std::map<int, Job> jobs;
    try {
      jobs = JobsOf(copies, outcome);
      for (auto& [ordinal, job] : jobs) {
        const CurrentContext current(driver, *job.device);
        outcome.fallback = ring.Make();
        if (!outcome.fallback.empty()) outcome.path = DevicePath::kPageable;
        Order(job);
        RingRun run(driver, *job.device, ring, true, [&](RingRun::Batch& batch) {
          for (const auto& [index, part] : batch.parts) {
            checksums[index] = ExtendCrc32c(checksums[index], reinterpret_cast<const char*>(part.host.source),
                                            static_cast<size_t>(part.bytes));
          }
        });
        for (const size_t index : job.copies) {
          for (DevicePart& part : PartsOf(copies[index].copy, ring.slot_bytes())) {
            outcome.bytes += part.bytes;
            run.Add(index, std::move(part));
          }
        }
        run.Finish();
        outcome.calls += run.calls();
      }
    } catch (const DriverFailure& failure) {
      AwaitAll(jobs);
      return Failed(failure);
    }
    return outcome;
  }

  // After a failure: nothing that was enqueued may still move when the caller lets go of its memory.
  void AwaitAll(const std::map<int, Job>& jobs) {
    for (const auto& [ordinal, job] : jobs) {
      if (job.device == nullptr) continue;
      try {
        const CurrentContext current(driver, *job.device);
        driver.call().stream_synchronize(job.device->stream());
      } catch (const DriverFailure&) {
        // A context that is broken moves nothing any more.
      }
    }
  }

  void Close() {
    if (devices.empty()) return;
    try {
      const CurrentContext current(driver, *devices.begin()->second);
      pinned.UnpinAll();
      ring.Free();
    } catch (const DriverFailure&) {
      // A context that is broken gives its memory up with the process.
    }
    devices.clear();
  }

  const GpuDriver& driver;
  StagingRing ring;
  PinnedMemory pinned;
  std::map<int, std::unique_ptr<DeviceContext>> devices;
  std::string pin_failure;
  std::atomic<bool> busy{false};
  std::atomic<bool> abandoned{false};
};

DeviceStaging::DeviceStaging(const GpuDriver& driver, int64_t slot_bytes)
    : core_(std::make_shared<Core>(driver, slot_bytes)) {}

DeviceStaging::~DeviceStaging() {
  core_->abandoned = true;
  Run(kCloseSeconds, [](Core& core) {
    core.Close();
    return DeviceOutcome();
  });
}

DeviceOutcome DeviceStaging::Run(double seconds, std::function<DeviceOutcome(Core&)> work) {
  const DeviceOutcome stalled = {.kind = DeviceOutcome::kStalled, .text = "the GPU's driver did not answer in time"};
  if (core_->busy.exchange(true)) return stalled;
  auto promise = std::make_shared<std::promise<DeviceOutcome>>();
  std::future<DeviceOutcome> done = promise->get_future();
  try {
    std::thread([core = core_, promise, work = std::move(work)] {
      DeviceOutcome outcome = work(*core);
      core->busy = false;
      promise->set_value(std::move(outcome));
      // Its owner went while it hung.
      if (core->abandoned && !core->busy.exchange(true)) core->Close();
    }).detach();
  } catch (const std::system_error&) {
    core_->busy = false;
    return {.kind = DeviceOutcome::kDriverFailed, .text = "the system refuses a thread"};
  }
  const auto wait = std::chrono::duration<double>(std::clamp(seconds, 0.0, 1e8));
  return done.wait_for(wait) == std::future_status::ready ? done.get() : stalled;
}

DeviceOutcome DeviceStaging::Pin(int device, void* memory, int64_t bytes, int64_t piece_bytes, double seconds) {
  return Run(seconds, [=](Core& core) -> DeviceOutcome {
    try {
      const CurrentContext current(core.driver, core.Device(device));
      core.pinned.Pin(static_cast<char*>(memory), bytes, piece_bytes);
      core.pin_failure.clear();
    } catch (const DriverFailure& failure) {
      core.pin_failure = failure.text;
      return core.Failed(failure);
    }
    return {.bytes = bytes};
  });
}

DeviceOutcome DeviceStaging::Unpin(void* memory, double seconds) {
  return Run(seconds, [=](Core& core) -> DeviceOutcome {
    if (core.pinned.empty()) return {};
    try {
      const CurrentContext current(core.driver, *core.devices.begin()->second);
      core.pinned.Unpin(static_cast<char*>(memory));
    } catch (const DriverFailure& failure) {
      return core.Failed(failure);
    }
    return {};
  });
}

DeviceOutcome DeviceStaging::Copy(std::vector<StagedCopy> copies, int64_t threads, double seconds) {
  if (copies.empty()) return {};
  return Run(seconds, [copies = std::move(copies), threads](Core& core) { return core.Copy(copies, threads); });
}

DeviceOutcome DeviceStaging::Checksum(std::vector<StagedCopy> copies, double seconds,
                                      std::vector<uint32_t>* checksums) {
  auto result = std::make_shared<std::vector<uint32_t>>();
  DeviceOutcome outcome =
      Run(seconds, [copies = std::move(copies), result](Core& core) { return core.Checksum(copies, *result); });
  if (outcome.kind == DeviceOutcome::kDone) *checksums = *result;
  return outcome;
}

bool DeviceStaging::busy() const { return core_->busy; }

int64_t DeviceStaging::pinned_bytes() const { return core_->pinned.bytes() + core_->ring.pinned_bytes(); }

}  // namespace cairn
