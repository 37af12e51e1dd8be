// The calls of CUDA's driver, as the stand-in makes them. docs/gpu.md says how it differs from a driver.
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "common/gpu/driver_api.h"
#include "tests/testing/stand_in/cuda/controls.h"
#include "tests/testing/stand_in/cuda/entry.h"
#include "tests/testing/stand_in/cuda/state.h"

namespace cairn::stand_in {
namespace {

using cuda::Copy2D;
using cuda::Device;
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

// Copies rows in a stream. Copies from and to pageable memory end before the call does, as a driver's do.
Result CopyRows(const Side& target, size_t target_pitch, const Side& source, size_t source_pitch, size_t width,
                size_t height, Stream stream, const char* count) {
  State& state = TheState();
  std::unique_lock lock(state.mutex);
  const std::shared_ptr<Queue> queue = state.FindStream(stream);
  if (queue == nullptr) return cuda::kInvalidHandle;
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

bool OnDevice(DevicePointer address, size_t bytes, Side* side) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  size_t offset = 0;
  const Allocation* found = state.Find(address, bytes, &offset);
  if (found == nullptr) return false;
  side->bytes = found->alias + offset;
  return true;
}

// Returns false if the memory is partly pinned, or in two ranges that were pinned one by one.
bool OnHost(char* host, size_t bytes, Side* side) {
  const std::lock_guard lock(TheState().mutex);
  const HostKind kind = TheState().KindOf(reinterpret_cast<uintptr_t>(host), bytes);
  *side = {.bytes = host, .pinned = kind == HostKind::kPinned};
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

Result cuGetErrorName(Result result, const char** name) {
  static constexpr std::pair<Result, const char*> kNames[] = {
      {kSuccess, "CUDA_SUCCESS"},
      {kInvalidValue, "CUDA_ERROR_INVALID_VALUE"},
      {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
      {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED"},
      {kNoDevice, "CUDA_ERROR_NO_DEVICE"},
      {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE"},
      {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT"},
      {kInvalidPtx, "CUDA_ERROR_INVALID_PTX"},
      {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE"},
      {kNotFound, "CUDA_ERROR_NOT_FOUND"},
      {kNotReady, "CUDA_ERROR_NOT_READY"},
      {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {kHostMemoryAlreadyRegistered, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"},
      {kHostMemoryNotRegistered, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"},
      {kNotSupported, "CUDA_ERROR_NOT_SUPPORTED"},
      {kStreamCaptureImplicit, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"},
      {kUnknown, "CUDA_ERROR_UNKNOWN"},
  };
  for (const auto& [code, text] : kNames) {
    if (code == result) {
      *name = text;
      return kSuccess;
    }
  }
  *name = nullptr;
  return kInvalidValue;
}

Result cuInit(unsigned flags) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  ++state.counts["cuInit"];
  if (flags != 0) return kInvalidValue;
  if (state.process == 0) state.process = getpid();
  return state.process == getpid() ? kSuccess : kNotInitialized;
}

Result cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}

Result cuDeviceGetCount(int* count) {
  CAIRN_ENTER(false);
  const std::lock_guard lock(TheState().mutex);
  *count = static_cast<int>(TheState().settings.devices);
  return kSuccess;
}

Result cuDeviceGet(Device* device, int ordinal) {
  CAIRN_ENTER(false);
  const std::lock_guard lock(TheState().mutex);
  if (ordinal < 0 || ordinal >= TheState().settings.devices) return kInvalidDevice;
  *device = ordinal;
  return kSuccess;
}

Result cuDeviceGetName(char* name, int length, Device device) {
  CAIRN_ENTER(false);
  std::snprintf(name, static_cast<size_t>(length), "stand-in %d", device);
  return kSuccess;
}

Result cuDeviceGetAttribute(int* value, int attribute, Device device) {
  CAIRN_ENTER(false);
  const std::lock_guard lock(TheState().mutex);
  if (device < 0 || device >= TheState().settings.devices) return kInvalidDevice;
  switch (attribute) {
    case kDeviceComputeMajor:
      *value = 9;
      return kSuccess;
    case kDeviceComputeMinor:
      *value = 0;
      return kSuccess;
    case kDeviceHandleTypePosix:
      *value = 1;
      return kSuccess;
    case kDeviceHandleTypeFabric:
      *value = 0;
      return kSuccess;
    default:
      return kInvalidValue;
  }
}

Result cuDevicePrimaryCtxRetain(Context* context, Device device) {
  CAIRN_ENTER(false);
  const std::lock_guard lock(TheState().mutex);
  if (device < 0 || device >= TheState().settings.devices) return kInvalidDevice;
  ++TheState().contexts[device];
  *context = ContextOf(device);
  return kSuccess;
}

Result cuDevicePrimaryCtxRelease_v2(Device device) {
  CAIRN_ENTER(false);
  const std::lock_guard lock(TheState().mutex);
  int64_t& retained = TheState().contexts[device];
  if (retained == 0) return kInvalidContext;
  --retained;
  return kSuccess;
}

Result cuCtxPushCurrent_v2(Context context) {
  CAIRN_ENTER(false);
  const std::lock_guard lock(TheState().mutex);
  const auto found = TheState().contexts.find(DeviceOf(context));
  if (found == TheState().contexts.end() || found->second == 0) return kInvalidContext;
  Current().push_back(context);
  return kSuccess;
}

Result cuCtxPopCurrent_v2(Context* context) {
  CAIRN_ENTER(true);
  *context = Current().back();
  Current().pop_back();
  return kSuccess;
}

Result cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  CAIRN_ENTER(true);
  const std::lock_guard lock(TheState().mutex);
  *total = static_cast<size_t>(TheState().settings.device_bytes);
  *free_bytes = *total - static_cast<size_t>(TheState().UsedBytes(DeviceOf(Current().back())));
  return kSuccess;
}

Result cuMemAlloc_v2(DevicePointer* address, size_t bytes) {
  CAIRN_ENTER(true);
  if (bytes == 0) return kInvalidValue;
  const std::lock_guard lock(TheState().mutex);
  const int device = DeviceOf(Current().back());
  if (TheState().UsedBytes(device) + static_cast<int64_t>(bytes) > TheState().settings.device_bytes)
    return kOutOfMemory;
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t length = (bytes + page - 1) / page * page;
  const int file = memfd_create("stand-in-device", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(length)) != 0) std::abort();
  // The host's own accesses to a device's address end the process.
  void* closed = mmap(nullptr, length, PROT_NONE, MAP_SHARED, file, 0);
  void* alias = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (closed == MAP_FAILED || alias == MAP_FAILED) std::abort();
  *address = reinterpret_cast<DevicePointer>(closed);
  TheState().memory[*address] = {.device = device, .bytes = bytes, .alias = static_cast<char*>(alias)};
  return kSuccess;
}

Result cuMemFree_v2(DevicePointer address) {
  CAIRN_ENTER(true);
  std::vector<std::pair<std::shared_ptr<Queue>, int64_t>> waits;
  {
    const std::lock_guard lock(TheState().mutex);
    if (!TheState().memory.contains(address)) return kInvalidValue;
    for (const auto& [handle, queue] : TheState().streams) waits.emplace_back(queue, queue->last());
  }
  for (const auto& [queue, ticket] : waits) queue->Await(ticket);
  const std::lock_guard lock(TheState().mutex);
  const Allocation gone = TheState().memory.at(address);
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  munmap(gone.alias, (gone.bytes + page - 1) / page * page);
  // The address stays taken, so that no later memory makes an old pointer good again.
  TheState().memory.erase(address);
  return kSuccess;
}

Result cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  CAIRN_ENTER(true);
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  const int64_t pinned = state.BytesOf(state.registered) + state.BytesOf(state.host_allocations);
  if (pinned + static_cast<int64_t>(bytes) > state.settings.pinnable_bytes) return kOutOfMemory;
  void* found = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (found == MAP_FAILED) return kOutOfMemory;
  state.host_allocations[reinterpret_cast<uintptr_t>(found)] = bytes;
  *memory = found;
  return kSuccess;
}

Result cuMemFreeHost(void* memory) {
  CAIRN_ENTER(true);
  const std::lock_guard lock(TheState().mutex);
  const auto found = TheState().host_allocations.find(reinterpret_cast<uintptr_t>(memory));
  if (found == TheState().host_allocations.end()) return kInvalidValue;
  munmap(memory, found->second);
  TheState().host_allocations.erase(found);
  return kSuccess;
}

Result cuMemHostRegister_v2(void* memory, size_t bytes, unsigned) {
  CAIRN_ENTER(true);
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  const uintptr_t begin = reinterpret_cast<uintptr_t>(memory);
  if (bytes == 0 || memory == nullptr) return kInvalidValue;
  for (const auto* ranges : {&state.registered, &state.host_allocations}) {
    for (const auto& [address, length] : *ranges) {
      if (begin < address + length && address < begin + bytes) return kHostMemoryAlreadyRegistered;
    }
  }
  const int64_t pinned = state.BytesOf(state.registered) + state.BytesOf(state.host_allocations);
  if (pinned + static_cast<int64_t>(bytes) > state.settings.pinnable_bytes) return kOutOfMemory;
  state.registered[begin] = bytes;
  return kSuccess;
}

Result cuMemHostUnregister(void* memory) {
  CAIRN_ENTER(true);
  const std::lock_guard lock(TheState().mutex);
  return TheState().registered.erase(reinterpret_cast<uintptr_t>(memory)) == 1 ? kSuccess : kHostMemoryNotRegistered;
}

Result cuPointerGetAttribute(void* data, int attribute, DevicePointer address) {
  CAIRN_ENTER(false);
  const std::lock_guard lock(TheState().mutex);
  size_t offset = 0;
  const Allocation* found = TheState().Find(address, 1, &offset);
  int value = 0;
  if (found != nullptr && attribute == kPointerAllowedHandleTypes) {
    const unsigned long long none = 0;
    std::memcpy(data, &none, sizeof none);
    return kSuccess;
  }
  if (found != nullptr) {
    value = attribute == kPointerMemoryType ? kMemoryTypeDevice : found->device;
  } else if (TheState().KindOf(static_cast<uintptr_t>(address), 1) == HostKind::kPinned) {
    value = attribute == kPointerMemoryType ? kMemoryTypeHost : 0;
  } else {
    return kInvalidValue;
  }
  if (attribute != kPointerMemoryType && attribute != kPointerDeviceOrdinal) return kNotSupported;
  std::memcpy(data, &value, sizeof value);
  return kSuccess;
}

Result cuMemcpyDtoHAsync_v2(void* target, DevicePointer source, size_t bytes, Stream stream) {
  CAIRN_ENTER(true);
  Side from, to;
  if (!OnDevice(source, bytes, &from) || !OnHost(static_cast<char*>(target), bytes, &to)) return kInvalidValue;
  return CopyRows(to, bytes, from, bytes, bytes, 1, stream, "bytes_to_host");
}

Result cuMemcpyHtoDAsync_v2(DevicePointer target, const void* source, size_t bytes, Stream stream) {
  CAIRN_ENTER(true);
  Side to, from;
  if (!OnDevice(target, bytes, &to) || !OnHost(Bytes(source), bytes, &from)) return kInvalidValue;
  return CopyRows(to, bytes, from, bytes, bytes, 1, stream, "bytes_to_device");
}

Result cuMemcpy2DAsync_v2(const Copy2D* copy, Stream stream) {
  CAIRN_ENTER(true);
  if (copy->width > copy->source_pitch || copy->width > copy->target_pitch) return kInvalidValue;
  if (copy->source_x != 0 || copy->source_y != 0 || copy->target_x != 0 || copy->target_y != 0) return kNotSupported;
  if (copy->height == 0) return kSuccess;
  const auto reach = [&](size_t pitch) { return (copy->height - 1) * pitch + copy->width; };
  const bool to_host = copy->source_type == kMemoryTypeDevice && copy->target_type == kMemoryTypeHost;
  if (!to_host && (copy->source_type != kMemoryTypeHost || copy->target_type != kMemoryTypeDevice))
    return kNotSupported;
  Side source, target;
  if (to_host) {
    if (!OnDevice(copy->source_device, reach(copy->source_pitch), &source)) return kInvalidValue;
    if (!OnHost(static_cast<char*>(copy->target_host), reach(copy->target_pitch), &target)) return kInvalidValue;
  } else {
    if (!OnDevice(copy->target_device, reach(copy->target_pitch), &target)) return kInvalidValue;
    if (!OnHost(Bytes(copy->source_host), reach(copy->source_pitch), &source)) return kInvalidValue;
  }
  return CopyRows(target, copy->target_pitch, source, copy->source_pitch, copy->width, copy->height, stream,
                  to_host ? "bytes_to_host" : "bytes_to_device");
}

Result cuStreamCreate(Stream* stream, unsigned flags) {
  CAIRN_ENTER(true);
  const std::lock_guard lock(TheState().mutex);
  const uintptr_t handle = TheState().next_handle += 16;
  TheState().streams[handle] = std::make_shared<Queue>((flags & kStreamNonBlocking) == 0);
  *stream = reinterpret_cast<Stream>(handle);
  return kSuccess;
}

Result cuStreamDestroy_v2(Stream stream) {
  CAIRN_ENTER(true);
  const std::lock_guard lock(TheState().mutex);
  return TheState().streams.erase(reinterpret_cast<uintptr_t>(stream)) == 1 ? kSuccess : kInvalidHandle;
}

Result cuStreamWaitEvent(Stream stream, Event event, unsigned) {
  CAIRN_ENTER(true);
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  const std::shared_ptr<Queue> queue = state.FindStream(stream);
  const auto found = state.events.find(reinterpret_cast<uintptr_t>(event));
  if (queue == nullptr || found == state.events.end()) return kInvalidHandle;
  const EventState recorded = found->second;
  if (recorded.queue != nullptr) AddWork(state, queue, [recorded] { recorded.queue->Await(recorded.ticket); });
  return kSuccess;
}

Result cuStreamQuery(Stream stream) {
  CAIRN_ENTER(true);
  const std::lock_guard lock(TheState().mutex);
  const std::shared_ptr<Queue> queue = TheState().FindStream(stream);
  if (queue == nullptr) return kInvalidHandle;
  return queue->IsDone(queue->last()) ? kSuccess : kNotReady;
}

Result cuStreamIsCapturing(Stream stream, int* status) {
  CAIRN_ENTER(true);
  const std::lock_guard lock(TheState().mutex);
  if (TheState().FindStream(stream) == nullptr) return kInvalidHandle;
  const bool is_default = reinterpret_cast<uintptr_t>(stream) <= kStreamLegacy;
  if (is_default && TheState().settings.capturing != 0) return kStreamCaptureImplicit;
  *status = static_cast<int>(TheState().settings.capturing);
  return kSuccess;
}

Result cuStreamSynchronize(Stream stream) {
  CAIRN_ENTER(true);
  std::shared_ptr<Queue> queue;
  {
    const std::lock_guard lock(TheState().mutex);
    queue = TheState().FindStream(stream);
  }
  if (queue == nullptr) return kInvalidHandle;
  queue->Await(queue->last());
  return kSuccess;
}

Result cuEventCreate(Event* event, unsigned) {
  CAIRN_ENTER(true);
  const std::lock_guard lock(TheState().mutex);
  const uintptr_t handle = TheState().next_handle += 16;
  TheState().events[handle] = {};
  *event = reinterpret_cast<Event>(handle);
  return kSuccess;
}

Result cuEventDestroy_v2(Event event) {
  CAIRN_ENTER(true);
  const std::lock_guard lock(TheState().mutex);
  return TheState().events.erase(reinterpret_cast<uintptr_t>(event)) == 1 ? kSuccess : kInvalidHandle;
}

Result cuEventRecord(Event event, Stream stream) {
  CAIRN_ENTER(true);
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  const std::shared_ptr<Queue> queue = state.FindStream(stream);
  const auto found = state.events.find(reinterpret_cast<uintptr_t>(event));
  if (queue == nullptr || found == state.events.end()) return kInvalidHandle;
  found->second = {.queue = queue, .ticket = AddWork(state, queue, [] {})};
  return kSuccess;
}

Result cuEventQuery(Event event) {
  CAIRN_ENTER(true);
  const std::lock_guard lock(TheState().mutex);
  const auto found = TheState().events.find(reinterpret_cast<uintptr_t>(event));
  if (found == TheState().events.end()) return kInvalidHandle;
  const EventState& state = found->second;
  return state.queue == nullptr || state.queue->IsDone(state.ticket) ? kSuccess : kNotReady;
}

Result cuEventSynchronize(Event event) {
  CAIRN_ENTER(true);
  EventState recorded;
  {
    const std::lock_guard lock(TheState().mutex);
    const auto found = TheState().events.find(reinterpret_cast<uintptr_t>(event));
    if (found == TheState().events.end()) return kInvalidHandle;
    recorded = found->second;
  }
  if (recorded.queue != nullptr) recorded.queue->Await(recorded.ticket);
  return kSuccess;
}

bool cairn_stand_in_enqueue(void* stream, void (*work)(void*), void* argument) {
  const std::lock_guard lock(TheState().mutex);
  const std::shared_ptr<Queue> queue = TheState().FindStream(static_cast<Stream>(stream));
  if (queue == nullptr) return false;
  AddWork(TheState(), queue, [work, argument] { work(argument); });
  return true;
}

void* cairn_stand_in_reach(const void* address, uint64_t bytes) {
  Side side;
  if (OnDevice(reinterpret_cast<DevicePointer>(address), bytes, &side)) return side.bytes;
  const std::lock_guard lock(TheState().mutex);
  return TheState().IsPinned(reinterpret_cast<uintptr_t>(address), bytes) ? Bytes(address) : nullptr;
}

int64_t cairn_stand_in_current_device() { return Current().empty() ? -1 : DeviceOf(Current().back()); }

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
