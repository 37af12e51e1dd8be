// The stand-in's calls that copy between devices and the host.
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "gpu/driver/driver_api.h"
#include "tests/testing/stand_in/cuda/controls.h"
#include "tests/testing/stand_in/cuda/entry.h"
#include "tests/testing/stand_in/cuda/state.h"

namespace cairn::stand_in {
namespace {

using cuda::DevicePointer;
using cuda::Result;
using cuda::Stream;

// Plays the copy engine in a stream's thread.
void Engine(int64_t bytes, bool to_host) {
  State& state = TheState();
  std::unique_lock lock(state.mutex);
  state.changed.wait(lock, [&] {
    const int64_t stopped = state.settings.engine_stopped;
    return stopped == 0 || (stopped == 2 && !to_host);
  });
  int64_t wait_us = state.settings.copy_delay_us;
  if (state.settings.bytes_per_second > 0) wait_us += bytes * 1'000'000 / state.settings.bytes_per_second;
  lock.unlock();
  if (wait_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(wait_us));
}

struct Side {
  char* bytes = nullptr;
  bool pinned = true;
};

// Copies rows in a stream. Copies from and to pageable memory end before the call does, as a driver's do. Holds the
// mutex since the sides were found, so that nothing frees them in between.
Result CopyRows(std::unique_lock<std::mutex> lock, const Side& target, size_t target_pitch, const Side& source,
                size_t source_pitch, size_t width, size_t height, Stream stream, const char* count) {
  State& state = TheState();
  const std::shared_ptr<Queue> queue = state.FindStream(stream);
  if (queue == nullptr) return cuda::kInvalidHandle;
  if (const auto recorded = Recorded(state, stream)) return *recorded;
  const int64_t ticket = AddWork(state, queue, [=] {
    Engine(static_cast<int64_t>(width * height), std::strcmp(count, "bytes_to_host") == 0);
    for (size_t row = 0; row < height; ++row) {
      std::memcpy(target.bytes + row * target_pitch, source.bytes + row * source_pitch, width);
    }
    const std::lock_guard counting(TheState().mutex);
    TheState().counts[count] += static_cast<int64_t>(width * height);
  });
  lock.unlock();
  if (!target.pinned || !source.pinned) queue->Await(ticket);
  return cuda::kSuccess;
}

// These want the mutex held.

bool OnDevice(DevicePointer address, size_t bytes, Side* side, int access = cuda::kAccessRead) {
  size_t offset = 0;
  const Allocation* found = TheState().Find(address, bytes, &offset, access);
  if (found == nullptr) return false;
  side->bytes = found->alias + offset;
  return true;
}

// Returns false if the memory is partly pinned, or in two ranges that were pinned one by one.
bool OnHost(char* host, size_t bytes, Side* side) {
  char* pages = host;
  const HostKind kind = TheState().KindOf(reinterpret_cast<uintptr_t>(host), bytes, &pages);
  *side = {.bytes = pages, .pinned = kind == HostKind::kPinned};
  return kind != HostKind::kMixed;
}

// The stand-in's copies write what the caller calls a source only if it is a target.
char* Bytes(const void* host) { return reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(host)); }

}  // namespace
}  // namespace cairn::stand_in

// NOLINTBEGIN(readability-identifier-naming): the names are the driver's.
using namespace cairn::stand_in;
using namespace cairn::cuda;

extern "C" {

Result cuMemcpyDtoHAsync_v2(void* target, DevicePointer source, size_t bytes, Stream stream) {
  CAIRN_ENTER(stream == nullptr);  // any other stream has a context
  Side from, to;
  std::unique_lock lock(TheState().mutex);
  if (!OnDevice(source, bytes, &from) || !OnHost(static_cast<char*>(target), bytes, &to)) return kInvalidValue;
  return CopyRows(std::move(lock), to, bytes, from, bytes, bytes, 1, stream, "bytes_to_host");
}

Result cuMemcpyHtoDAsync_v2(DevicePointer target, const void* source, size_t bytes, Stream stream) {
  CAIRN_ENTER(stream == nullptr);  // any other stream has a context
  Side to, from;
  std::unique_lock lock(TheState().mutex);
  if (!OnDevice(target, bytes, &to, kAccessReadWrite) || !OnHost(Bytes(source), bytes, &from)) return kInvalidValue;
  return CopyRows(std::move(lock), to, bytes, from, bytes, bytes, 1, stream, "bytes_to_device");
}

Result cuMemcpy2DAsync_v2(const Copy2D* copy, Stream stream) {
  CAIRN_ENTER(stream == nullptr);  // any other stream has a context
  if (copy->width > copy->source_pitch || copy->width > copy->target_pitch) return kInvalidValue;
  if (copy->source_x != 0 || copy->source_y != 0 || copy->target_x != 0 || copy->target_y != 0) return kNotSupported;
  if (copy->height == 0) return kSuccess;
  const auto reach = [&](size_t pitch) { return (copy->height - 1) * pitch + copy->width; };
  const bool to_host = copy->source_type == kMemoryTypeDevice && copy->target_type == kMemoryTypeHost;
  if (!to_host && (copy->source_type != kMemoryTypeHost || copy->target_type != kMemoryTypeDevice))
    return kNotSupported;
  Side source, target;
  std::unique_lock lock(TheState().mutex);
  if (to_host) {
    if (!OnDevice(copy->source_device, reach(copy->source_pitch), &source)) return kInvalidValue;
    if (!OnHost(static_cast<char*>(copy->target_host), reach(copy->target_pitch), &target)) return kInvalidValue;
  } else {
    if (!OnDevice(copy->target_device, reach(copy->target_pitch), &target, kAccessReadWrite)) return kInvalidValue;
    if (!OnHost(Bytes(copy->source_host), reach(copy->source_pitch), &source)) return kInvalidValue;
  }
  return CopyRows(std::move(lock), target, copy->target_pitch, source, copy->source_pitch, copy->width, copy->height,
                  stream, to_host ? "bytes_to_host" : "bytes_to_device");
}

void* cairn_stand_in_reach(const void* address, uint64_t bytes) {
  Side side;
  const std::lock_guard lock(TheState().mutex);
  if (OnDevice(reinterpret_cast<DevicePointer>(address), bytes, &side)) return side.bytes;
  return TheState().IsPinned(reinterpret_cast<uintptr_t>(address), bytes) ? Bytes(address) : nullptr;
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
