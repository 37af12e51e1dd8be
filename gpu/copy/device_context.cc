#include "gpu/copy/device_context.h"

#include <algorithm>
#include <iterator>
#include <limits>

namespace cairn {

void Require(const GpuDriver& driver, cuda::Result result, const char* call) {
  if (result != cuda::kSuccess) throw DriverFailure{std::string(call) + ": " + driver.NameOf(result)};
}

DeviceContext::DeviceContext(const GpuDriver& driver, int ordinal) : driver_(driver), ordinal_(ordinal) {
  Require(driver, driver.call().device_get(&device_, ordinal), "cuDeviceGet");
  Require(driver, driver.call().primary_context_retain(&context_, device_), "cuDevicePrimaryCtxRetain");
  try {
    const CurrentContext current(driver, *this);
    Require(driver, driver.call().stream_create(&stream_, cuda::kStreamNonBlocking), "cuStreamCreate");
  } catch (const DriverFailure&) {
    driver.call().primary_context_release(device_);
    throw;
  }
}

DeviceContext::~DeviceContext() {
  if (driver_.call().context_push(context_) == cuda::kSuccess) {
    driver_.call().stream_destroy(stream_);
    cuda::Context popped = nullptr;
    driver_.call().context_pop(&popped);
  }
  driver_.call().primary_context_release(device_);
}

void RelaxCapture(const GpuDriver& driver) {
  int mode = cuda::kCaptureRelaxed;
  Require(driver, driver.call().thread_exchange_capture_mode(&mode), "cuThreadExchangeStreamCaptureMode");
}

CurrentContext::CurrentContext(const GpuDriver& driver, const DeviceContext& context) : driver_(driver) {
  Require(driver, driver.call().context_push(context.context()), "cuCtxPushCurrent");
}

CurrentContext::~CurrentContext() {
  cuda::Context popped = nullptr;
  driver_.call().context_pop(&popped);
}

DeviceEvent::DeviceEvent(const GpuDriver& driver) : driver_(driver) {
  Require(driver, driver.call().event_create(&event_, cuda::kEventBlockingSync | cuda::kEventDisableTiming),
          "cuEventCreate");
}

DeviceEvent::~DeviceEvent() { driver_.call().event_destroy(event_); }

void PinnedMemory::Pin(uint64_t number, char* memory, int64_t bytes, int64_t piece_bytes) {
  if (Holds(number, memory, bytes)) return;
  Unpin(number);
  std::vector<std::pair<char*, int64_t>>& pieces = pieces_[number];
  try {
    for (int64_t at = 0; at < bytes; at += piece_bytes) {
      const int64_t size = std::min(piece_bytes, bytes - at);
      Require(driver_,
              driver_.call().host_register(memory + at, static_cast<size_t>(size), cuda::kMemHostRegisterPortable),
              "cuMemHostRegister");
      pieces.emplace_back(memory + at, size);
      bytes_ += size;
    }
  } catch (const DriverFailure& failure) {
    Unpin(number);
    refused_[number] = failure.text;
    throw;
  }
}

void PinnedMemory::Unpin(uint64_t number) {
  refused_.erase(number);
  const auto found = pieces_.find(number);
  if (found == pieces_.end()) return;
  for (const auto& [piece, size] : found->second) {
    driver_.call().host_unregister(piece);  // fails only in a broken context, which pins nothing any more
    bytes_ -= size;
  }
  pieces_.erase(found);
}

void PinnedMemory::UnpinAll() {
  while (!pieces_.empty()) Unpin(pieces_.begin()->first);
  refused_.clear();
}

bool PinnedMemory::Holds(uint64_t number, const void* memory, int64_t bytes) const {
  const auto found = pieces_.find(number);
  if (found == pieces_.end() || found->second.empty()) return false;
  const char* begin = static_cast<const char*>(memory);
  const auto& [last, size] = found->second.back();
  return begin >= found->second.front().first && bytes <= last + size - begin;
}

std::string PinnedMemory::WhyNot(uint64_t number) const {
  const auto found = refused_.find(number);
  return found == refused_.end() ? "the memory is not pinned" : found->second;
}

int64_t PinnedMemory::BytesToSeam(uint64_t number, const void* memory) const {
  const char* at = static_cast<const char*>(memory);
  const auto found = pieces_.find(number);
  if (found == pieces_.end()) return std::numeric_limits<int64_t>::max();
  // The pieces are adjacent, so the last one that begins at or before the address contains it.
  const auto next = std::upper_bound(found->second.begin(), found->second.end(), at,
                                     [](const char* address, const auto& piece) { return address < piece.first; });
  if (next == found->second.begin()) return std::numeric_limits<int64_t>::max();
  const auto& [piece, size] = *std::prev(next);
  return piece + size > at ? piece + size - at : std::numeric_limits<int64_t>::max();
}

std::vector<DeviceRows> PinnedMemory::Cut(uint64_t number, const std::vector<DeviceRows>& rows,
                                          const std::byte* packed) const {
  std::vector<DeviceRows> cut;
  for (DeviceRows left : rows) {
    while (left.rows > 0) {
      const int64_t room = BytesToSeam(number, packed + left.packed_offset);
      DeviceRows some = left;
      some.rows = std::min(left.rows, room / left.row_bytes);
      if (some.rows > 0) {
        cut.push_back(some);
      } else {
        // The border of a piece is within a row.
        for (int64_t at = 0; at < left.row_bytes;) {
          const int64_t bytes = std::min(left.row_bytes - at, BytesToSeam(number, packed + left.packed_offset + at));
          cut.push_back({.device = left.device + static_cast<uint64_t>(at),
                         .row_bytes = bytes,
                         .pitch = bytes,
                         .packed_offset = left.packed_offset + at});
          at += bytes;
        }
        some.rows = 1;
      }
      left.rows -= some.rows;
      left.device += static_cast<uint64_t>(some.rows * left.pitch);
      left.packed_offset += some.rows * left.row_bytes;
    }
  }
  return cut;
}

const std::string& StagingRing::Make() {
  if (slots_[0] != nullptr) return why_;
  std::array<void*, 2> found = {};
  const auto bytes = static_cast<size_t>(slot_bytes_);
  try {
    for (void*& slot : found) {
      Require(driver_, driver_.call().host_allocate(&slot, bytes, cuda::kMemHostAllocPortable), "cuMemHostAlloc");
    }
    for (size_t i = 0; i < found.size(); ++i) slots_[i] = static_cast<std::byte*>(found[i]);
    pinned_ = true;
  } catch (const DriverFailure& failure) {
    if (found[0] != nullptr) driver_.call().host_free(found[0]);
    why_ = failure.text;
    plain_.resize(2 * bytes);
    slots_ = {plain_.data(), plain_.data() + bytes};
  }
  return why_;
}

void StagingRing::Free() {
  if (pinned_) {
    for (std::byte* slot : slots_) driver_.call().host_free(slot);
  }
  slots_ = {};
  plain_ = {};
  why_.clear();
  pinned_ = false;
}

int64_t EnqueueRows(const GpuDriver& driver, cuda::Stream stream, const std::vector<DeviceRows>& rows, bool to_host,
                    std::byte* packed) {
  for (const DeviceRows& each : rows) {
    std::byte* host = packed + each.packed_offset;
    const auto bytes = static_cast<size_t>(each.row_bytes);
    if (each.rows == 1 && to_host) {
      Require(driver, driver.call().copy_to_host(host, each.device, bytes, stream), "cuMemcpyDtoHAsync");
      continue;
    }
    if (each.rows == 1) {
      Require(driver, driver.call().copy_to_device(each.device, host, bytes, stream), "cuMemcpyHtoDAsync");
      continue;
    }
    cuda::Copy2D copy = {};
    copy.width = bytes;
    copy.height = static_cast<size_t>(each.rows);
    if (to_host) {
      copy.source_type = cuda::kMemoryTypeDevice;
      copy.source_device = each.device;
      copy.source_pitch = static_cast<size_t>(each.pitch);
      copy.target_type = cuda::kMemoryTypeHost;
      copy.target_host = host;
      copy.target_pitch = bytes;
    } else {
      copy.source_type = cuda::kMemoryTypeHost;
      copy.source_host = host;
      copy.source_pitch = bytes;
      copy.target_type = cuda::kMemoryTypeDevice;
      copy.target_device = each.device;
      copy.target_pitch = static_cast<size_t>(each.pitch);
    }
    Require(driver, driver.call().copy_2d(&copy, stream), "cuMemcpy2DAsync");
  }
  return static_cast<int64_t>(rows.size());
}

}  // namespace cairn
