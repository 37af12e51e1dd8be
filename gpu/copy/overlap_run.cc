#include "gpu/copy/overlap_run.h"

#include <algorithm>
#include <map>
#include <vector>

#include "common/base/crc32c.h"
#include "gpu/copy/chunked_copy.h"

namespace cairn {
namespace {

// One overlapped save. Its methods throw DriverFailure.
class Overlap {
 public:
  Overlap(DeviceCore& core, const OverlapRequest& request, OverlapState& state)
      : core_(core), request_(request), state_(state), copies_(request.behind) {
    copies_.insert(copies_.end(), request.at_once.begin(), request.at_once.end());
  }

  DeviceOutcome Run() {
    jobs_ = core_.JobsOf(copies_, outcome_);
    if (jobs_.empty() || !IsPinned()) return outcome_;
    TakeSnapshot();
    state_.Begun(outcome_);
    CopyBehind();
    state_.Copied();
    Compare();
    return outcome_;
  }

  // Waits for all copies after a failure, also for those in the trainer's streams.
  void AwaitAll() {
    for (const auto& [ordinal, job] : jobs_) {
      try {
        const CurrentContext current(core_.driver, *job.device);
        for (const uint64_t stream : job.streams) {
          core_.driver.call().stream_synchronize(reinterpret_cast<cuda::Stream>(stream));
        }
      } catch (const DriverFailure&) {
        // A broken context copies nothing any more.
      }
    }
    core_.AwaitAll(jobs_);
  }

 private:
  bool IsPinned() {
    const CurrentContext current(core_.driver, *jobs_.begin()->second.device);
    if (core_.MayCopyStraight(copies_, outcome_)) return true;
    outcome_.kind = DeviceOutcome::kNotPinned;
    return false;
  }

  bool IsBehind(size_t index) const { return index < request_.behind.size(); }

  // Enqueues all work that must happen before the trainer's next work. It goes into the trainer's own streams, so that
  // later work of the trainer comes after it.
  void TakeSnapshot() {
    std::map<int, std::vector<size_t>> through_ring;
    for (auto& [ordinal, job] : jobs_) {
      const CurrentContext current(core_.driver, *job.device);
      if (request_.check) SumAll(ordinal, job);
      for (const size_t index : job.copies) {
        const auto stream = reinterpret_cast<cuda::Stream>(copies_[index].stream);
        if (IsBehind(index) || core_.CopyStraight(copies_[index], stream, outcome_)) continue;
        core_.Reorder(index, outcome_);
        through_ring[ordinal].push_back(index);
      }
      core_.Order(job);
      if (const auto digest = core_.digests.find(ordinal); checked_.contains(ordinal)) {
        digest->second.Fetch(job.device->stream());
      }
    }
    for (const auto& [ordinal, indices] : through_ring) {
      core_.CopyThroughRing(copies_, indices, core_.Device(ordinal), request_.threads, outcome_);
    }
  }

  // If the checksums cannot be computed, the save continues without them, and its outcome says so.
  void SumAll(int ordinal, const DeviceCore::Job& job) {
    std::vector<size_t>& indices = checked_[ordinal];
    for (const size_t index : job.copies) {
      if (IsPacked(copies_[index].copy)) indices.push_back(index);
    }
    std::stable_sort(indices.begin(), indices.end(),
                     [&](size_t a, size_t b) { return copies_[a].stream < copies_[b].stream; });
    std::vector<DeviceDigest::Array> arrays;
    for (const size_t index : indices) arrays.push_back({copies_[index].copy.device, SpanOf(copies_[index].copy)});
    try {
      DeviceDigest& digest = core_.digests.try_emplace(ordinal, core_.driver).first->second;
      digest.Begin(arrays);
      int64_t pinned = 0;
      for (const auto& [device, each] : core_.digests) pinned += each.pinned_bytes();
      core_.digest_pinned_bytes = pinned;
      for (size_t from = 0; from < indices.size();) {
        size_t to = from;
        while (to < indices.size() && copies_[indices[to]].stream == copies_[indices[from]].stream) ++to;
        digest.Sum(from, to, reinterpret_cast<cuda::Stream>(copies_[indices[from]].stream));
        from = to;
      }
    } catch (const DriverFailure& failure) {
      outcome_.unchecked = failure.text;
      checked_.erase(ordinal);
    }
  }

  // Returns whether the copy is one contiguous run of bytes on both sides.
  static bool IsPacked(const DeviceCopy& copy) {
    return !copy.copy.is_cast() && copy.copy.dimensions.empty() && copy.copy.element_bytes > 0;
  }

  void CopyBehind() {
    ChunkedCopy chunked(core_, request_.chunk_bytes);
    for (const auto& [ordinal, job] : jobs_) {
      // Also a device without late copies: its checksums and its copies in the trainer's streams must be waited for.
      chunked.Add(*job.device);
      for (const size_t index : job.copies) {
        if (IsBehind(index)) chunked.Add(*job.device, copies_[index]);
      }
    }
    chunked.Run(state_);
    outcome_.calls += chunked.calls();
    outcome_.bytes += chunked.bytes();
  }

  // Compares the checksums of the device's bytes at the save with the bytes in the slab, which will be written.
  void Compare() {
    for (const auto& [ordinal, indices] : checked_) {
      const DeviceDigest& digest = core_.digests.at(ordinal);
      for (size_t i = 0; i < indices.size(); ++i) {
        const DeviceCopy& copy = copies_[indices[i]].copy;
        ++outcome_.checked;
        if (Crc32c(copy.copy.target, static_cast<size_t>(copy.copy.element_bytes)) == digest.CrcOf(i)) continue;
        outcome_.kind = DeviceOutcome::kTorn;
        outcome_.index = static_cast<int64_t>(indices[i]);
        return;
      }
    }
  }

  DeviceCore& core_;
  const OverlapRequest& request_;
  OverlapState& state_;
  std::vector<StagedCopy> copies_;  // first those of request_.behind
  std::map<int, DeviceCore::Job> jobs_;
  std::map<int, std::vector<size_t>>
      checked_;  // by device: indices into copies_, in the order of the device's DeviceDigest
  DeviceOutcome outcome_;
};

}  // namespace

DeviceOutcome RunOverlap(DeviceCore& core, const OverlapRequest& request, OverlapState& state) {
  Overlap overlap(core, request, state);
  try {
    return overlap.Run();
  } catch (const DriverFailure& failure) {
    state.Copied();  // the copies are not used, so no update needs to wait for them
    overlap.AwaitAll();
    return FailedBy(failure);
  }
}

}  // namespace cairn
