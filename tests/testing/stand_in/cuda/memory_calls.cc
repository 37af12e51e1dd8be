// The stand-in's calls that take, free and pin memory.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "common/gpu/driver_api.h"
#include "tests/testing/stand_in/cuda/entry.h"
#include "tests/testing/stand_in/cuda/state.h"

// NOLINTBEGIN(readability-identifier-naming): the names are the driver's.
using namespace cairn::stand_in;
using namespace cairn::cuda;

extern "C" {

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

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
