#include "python/native/device_interface.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpu/copy/device_staging.h"
#include "gpu/copy/probe.h"
#include "python/native/copy_table.h"
#include "python/native/fingerprint_box.h"

namespace {

using cairn::DeviceOutcome;
using cairn::DeviceStaging;
using cairn::StagedCopy;

// A caller's handle points to this.
struct Handle {
  const cairn::GpuDriver& driver;
  DeviceStaging staging;
};

void Put(const std::string& text, char* to, size_t size) {
  const size_t length = std::min(text.size(), size - 1);
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
}

template <size_t kBytes>
void Put(const std::string& text, char (&to)[kBytes]) {
  Put(text, to, kBytes);
}

void Put(const DeviceOutcome& outcome, int64_t pinned_bytes, CairnDeviceOutcome* to) {
  to->kind = outcome.kind;
  to->index = outcome.index;
  to->path = static_cast<int64_t>(outcome.path);
  to->bytes = outcome.bytes;
  to->detour_bytes = outcome.detour_bytes;
  to->reordered = outcome.reordered;
  to->calls = outcome.calls;
  to->pinned_bytes = pinned_bytes;
  to->checked = outcome.checked;
  Put(outcome.text, to->text);
  Put(outcome.fallback, to->fallback);
  Put(outcome.unchecked, to->unchecked);
}

void Put(const DeviceOutcome& outcome, const Handle& handle, CairnDeviceOutcome* to) {
  Put(outcome, handle.staging.pinned_bytes(), to);
}

// A caller's handle of an overlapped save points to this.
struct OverlapHandle {
  std::shared_ptr<cairn::OverlapState> state;
  std::vector<int64_t> rows;  // of the caller's table, in the order of the copies
  int64_t pinned_bytes = 0;
};

void Put(const DeviceOutcome& outcome, const OverlapHandle& handle, CairnDeviceOutcome* to) {
  Put(outcome, handle.pinned_bytes, to);
  if (outcome.index >= 0) to->index = handle.rows[static_cast<size_t>(outcome.index)];
  if (outcome.reordered >= 0) to->reordered = handle.rows[static_cast<size_t>(outcome.reordered)];
}

// Returns the index of the first copy that is not valid; -1 if all are.
int64_t Read(bool to_host, uint64_t pinned, const CairnCopy* copies, int64_t count, const int64_t* dimensions,
             const uint64_t* streams, bool with_target, std::vector<StagedCopy>& to) {
  for (int64_t i = 0; i < count; ++i) {
    const CairnCopy& row = copies[i];
    const uint64_t device = reinterpret_cast<uint64_t>(to_host ? row.source : row.target) +
                            static_cast<uint64_t>(to_host ? row.source_offset : row.target_offset);
    std::optional<cairn::Walk> walk = cairn::ResolveWalk(row, dimensions, with_target);
    if (!walk) return i;
    for (const cairn::TiledCopy::Dimension& d : walk->dimensions) {
      const int64_t stride = to_host ? d.source_stride : d.target_stride;
      if (stride < 0 || (stride == 0 && d.extent > 1 && !to_host)) return i;
    }
    StagedCopy& copy = to.emplace_back();
    copy.stream = streams[i];
    copy.pinned = pinned;
    copy.copy = {.to_host = to_host,
                 .device = device,
                 .copy = {.source = to_host ? nullptr : reinterpret_cast<const std::byte*>(walk->source),
                          .target = to_host ? reinterpret_cast<std::byte*>(walk->target) : nullptr,
                          .element_bytes = walk->element_bytes,
                          .dimensions = std::move(walk->dimensions),
                          .casts = std::move(walk->casts)}};
  }
  return -1;
}

Handle& Of(void* staging) { return *static_cast<Handle*>(staging); }

}  // namespace

int64_t cairn_device_probe(const char* path, int64_t bytes, char* text, int64_t size) {
  const cairn::GpuProbe probe = cairn::ProbeGpu(path, bytes);
  Put(cairn::TextOf(probe), text, static_cast<size_t>(size));
  return probe.error.empty() ? 1 : 0;
}

int64_t cairn_device_handle_types(void* staging, uint64_t address) {
  unsigned long long types = 0;
  const cairn::cuda::Result result =
      Of(staging).driver.call().pointer_get_attribute(&types, cairn::cuda::kPointerAllowedHandleTypes, address);
  return result == cairn::cuda::kSuccess ? static_cast<int64_t>(types) : -1;
}

void* cairn_device_open(const char* path, int64_t slot_bytes, double seconds, CairnDeviceOutcome* outcome) {
  *outcome = {};
  std::string error;
  bool stalled = false;
  const cairn::GpuDriver* driver = cairn::GpuDriver::OpenWithin(path, seconds, &error, &stalled);
  if (driver == nullptr) {
    outcome->kind = stalled ? DeviceOutcome::kStalled : DeviceOutcome::kDriverFailed;
    Put(error, outcome->text);
    return nullptr;
  }
  return new Handle{*driver, DeviceStaging(*driver, slot_bytes)};
}

int64_t cairn_device_close(void* staging) {
  if (!Of(staging).staging.Close()) return 0;
  delete static_cast<Handle*>(staging);
  return 1;
}

int64_t cairn_device_busy(void* staging) { return Of(staging).staging.busy() ? 1 : 0; }

void cairn_device_waiting(void* staging, char* text, int64_t size) {
  Put(Of(staging).staging.Waiting(), text, static_cast<size_t>(size));
}

void cairn_device_locate(void* staging, const uint64_t* addresses, int64_t count, double seconds, int64_t* device,
                         CairnDeviceOutcome* outcome) {
  int ordinal = -1;
  Put(Of(staging).staging.Locate({addresses, addresses + count}, seconds, &ordinal), Of(staging), outcome);
  *device = ordinal;
}

void cairn_device_pin(void* staging, uint64_t number, int64_t device, void* memory, int64_t bytes, int64_t piece_bytes,
                      double seconds, CairnDeviceOutcome* outcome) {
  Put(Of(staging).staging.Pin(number, static_cast<int>(device), memory, bytes, piece_bytes, seconds), Of(staging),
      outcome);
}

void cairn_device_release(void* staging, uint64_t number, void* memory, int64_t bytes, double seconds) {
  const auto unmap = [memory, bytes] { munmap(memory, static_cast<size_t>(bytes)); };
  Of(staging).staging.Release(number, unmap, seconds);
}

int64_t cairn_device_releasing(void* staging) { return Of(staging).staging.releasing() ? 1 : 0; }

void cairn_device_copy(void* staging, int64_t to_host, uint64_t pinned, const CairnCopy* copies, int64_t count,
                       const int64_t* dimensions, const uint64_t* streams, int64_t threads, double seconds,
                       CairnDeviceOutcome* outcome) {
  *outcome = {};
  std::vector<StagedCopy> staged;
  outcome->index = Read(to_host != 0, pinned, copies, count, dimensions, streams, true, staged);
  outcome->kind = -1;
  if (outcome->index >= 0) return;
  Put(Of(staging).staging.Copy(std::move(staged), threads, seconds), Of(staging), outcome);
}

void cairn_device_checksum(void* staging, const CairnCopy* copies, int64_t count, const int64_t* dimensions,
                           const uint64_t* streams, double seconds, uint32_t* checksums, CairnDeviceOutcome* outcome) {
  *outcome = {};
  std::vector<StagedCopy> staged;
  outcome->index = Read(true, 0, copies, count, dimensions, streams, false, staged);
  outcome->kind = -1;
  if (outcome->index >= 0) return;
  std::vector<uint32_t> result;
  Put(Of(staging).staging.Checksum(std::move(staged), seconds, &result), Of(staging), outcome);
  std::copy(result.begin(), result.end(), checksums);
}

void cairn_device_fingerprint(void* staging, const CairnCopy* copies, int64_t count, const int64_t* dimensions,
                              const uint64_t* streams, const int64_t* boxes, double seconds, uint64_t* parts,
                              CairnDeviceOutcome* outcome) {
  *outcome = {};
  std::vector<StagedCopy> staged;
  outcome->index = Read(true, 0, copies, count, dimensions, streams, false, staged);
  outcome->kind = -1;
  if (outcome->index >= 0) return;
  std::vector<cairn::FingerprintPart> places;
  for (int64_t i = 0; i < count; ++i) {
    const cairn::TiledCopy& copy = staged[static_cast<size_t>(i)].copy.copy;
    std::optional<cairn::FingerprintPart> place = cairn::ReadFingerprintBox(boxes, copy.element_bytes);
    outcome->index = i;
    if (!place.has_value() || !copy.dimensions.empty()) return;
    places.push_back(*std::move(place));
  }
  outcome->index = -1;
  const DeviceOutcome done = Of(staging).staging.Fingerprint(std::move(staged), seconds, &places);
  Put(done, Of(staging), outcome);
  if (done.kind != DeviceOutcome::kDone) return;
  std::transform(places.begin(), places.end(), parts, [](const auto& place) { return place.Value(); });
}

void* cairn_blocks_find(void* staging, const CairnCopy* arrays, int64_t count, const int64_t* dimensions,
                        const uint64_t* streams, double seconds, CairnDeviceOutcome* outcome) {
  *outcome = {};
  std::vector<StagedCopy> staged;
  outcome->index = Read(true, 0, arrays, count, dimensions, streams, false, staged);
  outcome->kind = -1;
  if (outcome->index >= 0) return nullptr;
  std::vector<cairn::SharedBlock> found;
  Put(Of(staging).staging.FindBlocks(std::move(staged), seconds, &found), Of(staging), outcome);
  if (outcome->kind != DeviceOutcome::kDone) return nullptr;
  auto blocks = std::make_unique<std::vector<CairnDeviceBlock>>();
  for (const cairn::SharedBlock& block : found) {
    CairnDeviceBlock& to = blocks->emplace_back();
    to = {.kind = block.kind, .begin = block.begin, .bytes = block.bytes, .handle = block.handle};
    static_assert(sizeof(to.ipc) == sizeof(block.ipc.bytes) && sizeof(to.uuid) == sizeof(block.uuid.bytes));
    std::memcpy(to.ipc, block.ipc.bytes, sizeof(to.ipc));
    std::memcpy(to.uuid, block.uuid.bytes, sizeof(to.uuid));
    Put(block.why, to.why);
  }
  return blocks.release();
}

int64_t cairn_blocks_count(void* blocks) {
  return static_cast<int64_t>(static_cast<std::vector<CairnDeviceBlock>*>(blocks)->size());
}

const CairnDeviceBlock* cairn_blocks_data(void* blocks) {
  return static_cast<std::vector<CairnDeviceBlock>*>(blocks)->data();
}

void cairn_blocks_free(void* blocks) { delete static_cast<std::vector<CairnDeviceBlock>*>(blocks); }

void cairn_blocks_export(void* staging, const uint64_t* handles, int64_t count, double seconds, int32_t* files,
                         CairnDeviceOutcome* outcome) {
  *outcome = {};
  std::vector<cairn::UniqueFd> made;
  Put(Of(staging).staging.Export({handles, handles + count}, seconds, &made), Of(staging), outcome);
  for (size_t i = 0; i < made.size(); ++i) files[i] = made[i].release();
}

void cairn_blocks_forget(void* staging, double seconds, CairnDeviceOutcome* outcome) {
  *outcome = {};
  Put(Of(staging).staging.ForgetBlocks(seconds), Of(staging), outcome);
}

void* cairn_overlap_begin(void* staging, uint64_t pinned, const CairnCopy* copies, int64_t count,
                          const int64_t* dimensions, const uint64_t* streams, const uint8_t* behind, int64_t check,
                          int64_t chunk_bytes, int64_t threads, double seconds, CairnDeviceOutcome* outcome) {
  *outcome = {};
  std::vector<StagedCopy> staged;
  outcome->index = Read(true, pinned, copies, count, dimensions, streams, true, staged);
  outcome->kind = -1;
  if (outcome->index >= 0) return nullptr;
  auto handle = std::make_unique<OverlapHandle>();
  cairn::OverlapRequest request = {.check = check != 0, .chunk_bytes = chunk_bytes, .threads = threads};
  std::vector<int64_t> others;
  for (size_t i = 0; i < staged.size(); ++i) {
    const cairn::TiledCopy& copy = staged[i].copy.copy;
    const bool may_wait = behind[i] != 0 && copy.dimensions.empty() && !copy.is_cast();
    (may_wait ? handle->rows : others).push_back(static_cast<int64_t>(i));
    (may_wait ? request.behind : request.at_once).push_back(std::move(staged[i]));
  }
  handle->rows.insert(handle->rows.end(), others.begin(), others.end());
  DeviceOutcome begun;
  handle->state = Of(staging).staging.Overlap(std::move(request), seconds, &begun);
  handle->pinned_bytes = Of(staging).staging.pinned_bytes();
  Put(begun, *handle, outcome);
  return begun.kind == DeviceOutcome::kDone ? handle.release() : nullptr;
}

int64_t cairn_overlap_guard(void* overlap, const int64_t* ordinals, const uint64_t* streams, int64_t count,
                            double seconds) {
  cairn::OverlapState::Streams named;
  for (int64_t i = 0; i < count; ++i) named[static_cast<int>(ordinals[i])] = streams[i];
  return static_cast<OverlapHandle*>(overlap)->state->Guard(std::move(named), seconds) ? 1 : 0;
}

int64_t cairn_overlap_await(void* overlap, double seconds, CairnDeviceOutcome* outcome) {
  const auto& handle = *static_cast<OverlapHandle*>(overlap);
  DeviceOutcome ended;
  if (!handle.state->AwaitEnd(seconds, &ended)) return 0;
  *outcome = {};
  Put(ended, handle, outcome);
  return 1;
}

void cairn_overlap_free(void* overlap) { delete static_cast<OverlapHandle*>(overlap); }
