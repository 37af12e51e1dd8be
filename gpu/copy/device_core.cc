#include "gpu/copy/device_core.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "common/base/crc32c.h"
#include "common/tensor/parallel_copy.h"
#include "gpu/copy/device_fingerprint.h"
#include "gpu/copy/device_ranges.h"
#include "gpu/copy/ring_run.h"

namespace cairn {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

// Returns the size of the memory that a side of a copy spans; kMost if it does not fit into 64 bits.
int64_t Reach(const std::vector<TiledCopy::Dimension>& dimensions, int64_t TiledCopy::Dimension::* stride,
              int64_t element_bytes) {
  int64_t span = element_bytes;
  bool overflown = false;
  for (const TiledCopy::Dimension& d : dimensions) {
    if (d.extent == 0) return 0;
    int64_t reach = 0;
    overflown = __builtin_mul_overflow(d.extent - 1, d.*stride, &reach) || __builtin_add_overflow(span, reach, &span) ||
                overflown;
  }
  return overflown ? kMost : span;
}

int64_t HostSpanOf(const DeviceCopy& copy) {
  return copy.to_host
             ? Reach(copy.copy.dimensions, &TiledCopy::Dimension::target_stride, copy.copy.target_element_bytes())
             : Reach(copy.copy.dimensions, &TiledCopy::Dimension::source_stride, copy.copy.element_bytes);
}

const std::byte* HostSideOf(const DeviceCopy& copy) { return copy.to_host ? copy.copy.target : copy.copy.source; }

}  // namespace

int64_t SpanOf(const DeviceCopy& copy) {
  return Reach(copy.copy.dimensions,
               copy.to_host ? &TiledCopy::Dimension::source_stride : &TiledCopy::Dimension::target_stride,
               copy.device_element_bytes());
}

DeviceOutcome FailedBy(const DriverFailure& failure) {
  return {.kind = DeviceOutcome::kDriverFailed, .text = failure.text};
}

DeviceContext& DeviceCore::Device(int ordinal) {
  const auto found = devices.find(ordinal);
  if (found != devices.end()) return *found->second;
  auto made = std::make_unique<DeviceContext>(driver, ordinal);  // before the map is changed, because it may throw
  return *devices.emplace(ordinal, std::move(made)).first->second;
}

std::map<int, DeviceCore::Job> DeviceCore::JobsOf(const std::vector<StagedCopy>& copies, DeviceOutcome& outcome) {
  std::map<int, Job> jobs;
  {
    DeviceRanges ranges(driver, [&](int ordinal) -> const DeviceContext& { return Device(ordinal); });
    for (size_t i = 0; i < copies.size(); ++i) {
      const int64_t span = SpanOf(copies[i].copy);
      if (span == 0) continue;
      int ordinal = 0;
      outcome.kind = ranges.Find(copies[i].copy.device, span, &ordinal);
      outcome.index = static_cast<int64_t>(i);
      if (outcome.kind != DeviceOutcome::kDone) return {};
      jobs[ordinal].copies.push_back(i);
      jobs[ordinal].streams.insert(copies[i].stream);
    }
  }
  outcome.kind = DeviceOutcome::kDone;
  outcome.index = -1;
  for (auto& [ordinal, job] : jobs) job.device = &Device(ordinal);
  for (const auto& [ordinal, job] : jobs) {
    const CurrentContext current(driver, *job.device);
    std::set<uint64_t> asked;
    for (const size_t index : job.copies) {
      if (!asked.insert(copies[index].stream).second || !IsCapturing(copies[index].stream)) continue;
      outcome.kind = DeviceOutcome::kCapturing;
      outcome.index = static_cast<int64_t>(index);
      return {};
    }
  }
  return jobs;
}

bool DeviceCore::IsCapturing(uint64_t stream) const {
  int status = cuda::kCaptureNone;
  const cuda::Result result = driver.call().stream_is_capturing(reinterpret_cast<cuda::Stream>(stream), &status);
  if (result == cuda::kStreamCaptureImplicit) return true;
  Require(driver, result, "cuStreamIsCapturing");
  return status != cuda::kCaptureNone;
}

void DeviceCore::Order(const Job& job) {
  for (const uint64_t stream : job.streams) {
    DeviceEvent event(driver);
    event.Record(reinterpret_cast<cuda::Stream>(stream));
    Require(driver, driver.call().stream_wait_event(job.device->stream(), event.event(), 0), "cuStreamWaitEvent");
  }
}

bool DeviceCore::MayCopyStraight(const std::vector<StagedCopy>& copies, DeviceOutcome& outcome) {
  const bool to_host = copies.front().copy.to_host;
  if (std::all_of(copies.begin(), copies.end(), [&](const StagedCopy& each) {
        return SpanOf(each.copy) == 0 || pinned.Holds(each.pinned, HostSideOf(each.copy), HostSpanOf(each.copy));
      })) {
    return true;
  }
  outcome.path = DevicePath::kPinnedRing;
  if (to_host) outcome.fallback = pinned.WhyNot(copies.front().pinned);
  const std::string& why = ring.Make();
  if (why.empty()) return false;
  outcome.path = DevicePath::kPageable;
  outcome.fallback += (outcome.fallback.empty() ? "" : "; ") + why;
  return to_host;
}

DeviceOutcome DeviceCore::Copy(const std::vector<StagedCopy>& copies, int64_t threads) {
  DeviceOutcome outcome;
  std::map<int, Job> jobs;
  try {
    jobs = JobsOf(copies, outcome);
    if (jobs.empty()) return outcome;
    const CurrentContext any(driver, *jobs.begin()->second.device);
    const bool straight = MayCopyStraight(copies, outcome);
    const bool pageable = outcome.path == DevicePath::kPageable;
    // Work is enqueued on all devices before the host waits for one of them.
    std::map<int, std::vector<size_t>> through_ring;
    for (auto& [ordinal, job] : jobs) {
      const CurrentContext current(driver, *job.device);
      Order(job);
      for (const size_t index : job.copies) {
        if (straight && CopyStraight(copies[index], job.device->stream(), outcome)) continue;
        if (straight) Reorder(index, outcome);
        through_ring[ordinal].push_back(index);
      }
    }
    for (const auto& [ordinal, indices] : through_ring) {
      CopyThroughRing(copies, indices, Device(ordinal), threads, outcome);
    }
    if (pageable) outcome.detour_bytes = outcome.bytes;
    for (const auto& [ordinal, job] : jobs) {
      const CurrentContext current(driver, *job.device);
      DeviceEvent done(driver);
      done.Record(job.device->stream());
      done.Await();
    }
  } catch (const DriverFailure& failure) {
    AwaitAll(jobs);
    return FailedBy(failure);
  }
  return outcome;
}

bool DeviceCore::CopyStraight(const StagedCopy& copy, cuda::Stream stream, DeviceOutcome& outcome) {
  const std::vector<DevicePart> parts = PartsOf(copy.copy, kMost);
  if (parts.empty() || !parts.front().direct) return parts.empty();
  auto* packed = const_cast<std::byte*>(HostSideOf({.to_host = copy.copy.to_host, .copy = parts.front().host}));
  outcome.calls +=
      EnqueueRows(driver, stream, pinned.Cut(copy.pinned, parts.front().rows, packed), copy.copy.to_host, packed);
  outcome.bytes += parts.front().bytes;
  return true;
}

void DeviceCore::Reorder(size_t index, DeviceOutcome& outcome) {
  if (outcome.path != DevicePath::kPinnedSlab) return;  // the path is already a slower one
  outcome.reordered = static_cast<int64_t>(index);
  outcome.fallback = ring.Make();
  outcome.path = outcome.fallback.empty() ? DevicePath::kPinnedRing : DevicePath::kPageable;
}

void DeviceCore::CopyThroughRing(const std::vector<StagedCopy>& copies, const std::vector<size_t>& indices,
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
      outcome.detour_bytes += part.bytes;
      run.Add(index, std::move(part));
    }
  }
  run.Finish();
  outcome.calls += run.calls();
}

void DeviceCore::ReadThroughRing(const std::vector<StagedCopy>& copies, const Job& job,
                                 const std::function<void(size_t index, const char* bytes, size_t size)>& take,
                                 DeviceOutcome& outcome) {
  outcome.fallback = ring.Make();
  if (!outcome.fallback.empty()) outcome.path = DevicePath::kPageable;
  Order(job);
  RingRun run(driver, *job.device, ring, true, [&](RingRun::Batch& batch) {
    for (const auto& [index, part] : batch.parts) {
      take(index, reinterpret_cast<const char*>(part.host.source), static_cast<size_t>(part.bytes));
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

DeviceOutcome DeviceCore::Checksum(const std::vector<StagedCopy>& copies, std::vector<uint32_t>& checksums) {
  DeviceOutcome outcome = {.path = DevicePath::kPinnedRing};
  checksums.assign(copies.size(), 0);
  std::map<int, Job> jobs;
  try {
    jobs = JobsOf(copies, outcome);
    for (auto& [ordinal, job] : jobs) {
      const CurrentContext current(driver, *job.device);
      const auto take = [&](size_t index, const char* bytes, size_t size) {
        checksums[index] = ExtendCrc32c(checksums[index], bytes, size);
      };
      ReadThroughRing(copies, job, take, outcome);
    }
  } catch (const DriverFailure& failure) {
    AwaitAll(jobs);
    return FailedBy(failure);
  }
  return outcome;
}

DeviceOutcome DeviceCore::Fingerprint(const std::vector<StagedCopy>& copies, std::vector<FingerprintPart>& parts) {
  DeviceOutcome outcome;
  std::map<int, Job> jobs;
  try {
    jobs = JobsOf(copies, outcome);
    for (auto& [ordinal, job] : jobs) {
      const CurrentContext current(driver, *job.device);
      std::optional<DeviceFingerprint> sums;
      try {
        sums.emplace(driver, *job.device);
      } catch (const DriverFailure& failure) {
        outcome.unchecked = failure.text;  // the device has no memory left, say: the host can compute it, too
      }
      if (!sums.has_value()) {
        const auto take = [&](size_t index, const char* bytes, size_t size) { parts[index].Add(bytes, size); };
        ReadThroughRing(copies, job, take, outcome);
        continue;
      }
      Order(job);
      for (const size_t index : job.copies) sums->Add(copies[index].copy.device, parts[index]);
      sums->Finish();
    }
  } catch (const DriverFailure& failure) {
    AwaitAll(jobs);
    return FailedBy(failure);
  }
  return outcome;
}

DeviceOutcome DeviceCore::FindBlocks(const std::vector<StagedCopy>& copies, std::vector<SharedBlock>& blocks) {
  DeviceOutcome outcome;
  try {
    const std::map<int, Job> jobs = JobsOf(copies, outcome);
    for (const auto& [ordinal, job] : jobs) {
      const CurrentContext current(driver, *job.device);
      for (const uint64_t stream : job.streams) {
        DeviceEvent event(driver);
        event.Record(reinterpret_cast<cuda::Stream>(stream));
        event.Await();
      }
    }
    if (outcome.kind != DeviceOutcome::kDone) return outcome;
    std::vector<SharedBlocks::Array> arrays;
    for (const StagedCopy& copy : copies) {
      const int64_t span = SpanOf(copy.copy);
      if (span > 0) arrays.push_back({.address = copy.copy.device, .bytes = static_cast<uint64_t>(span)});
    }
    blocks = shared.Find(std::move(arrays));
  } catch (const DriverFailure& failure) {
    return FailedBy(failure);
  }
  return outcome;
}

void DeviceCore::AwaitAll(const std::map<int, Job>& jobs) {
  for (const auto& [ordinal, job] : jobs) {
    if (job.device == nullptr) continue;
    try {
      const CurrentContext current(driver, *job.device);
      driver.call().stream_synchronize(job.device->stream());
    } catch (const DriverFailure&) {
      // A broken context copies nothing any more.
    }
  }
}

void DeviceCore::Close() {
  if (devices.empty()) return;
  try {
    const CurrentContext current(driver, *devices.begin()->second);
    shared.Forget();
    pinned.UnpinAll();
    ring.Free();
    for (auto& [ordinal, digest] : digests) {
      const CurrentContext own(driver, Device(ordinal));
      digest.Free();
    }
  } catch (const DriverFailure&) {
    // The memory of a broken context is freed with the process.
  }
  digests.clear();
  devices.clear();
}

}  // namespace cairn
