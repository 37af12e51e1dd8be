// The stand-in's calls that take, free and pin memory.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gpu/driver/driver_api.h"
#include "tests/testing/stand_in/cuda/entry.h"
#include "tests/testing/stand_in/cuda/state.h"

namespace cairn::stand_in {
namespace {

// Returns addresses for memory. As a driver's, allocations of whole pages follow one another without a gap.
void* NextAddresses(size_t length) {
  constexpr size_t kArena = size_t{1} << 38;
  static char* const arena = [] {
    void* found = mmap(nullptr, kArena, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return found == MAP_FAILED ? nullptr : static_cast<char*>(found);
  }();
  static size_t used = 0;
  if (arena == nullptr || length > kArena - used) return nullptr;
  used += length;
  return arena + used - length;
}

// Returns whether this process may write to a page.
bool IsWritable(uintptr_t address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    char* rest = nullptr;
    const uintptr_t begin = std::strtoull(line.c_str(), &rest, 16);
    const uintptr_t end = std::strtoull(rest + 1, &rest, 16);
    if (begin <= address && address < end) return rest[2] == 'w';  // such as " rw-s"
  }
  return false;
}

// Gives memory an address of its own.
cuda::DevicePointer Place(std::shared_ptr<Physical> physical) {
  const size_t length = physical->length();
  // The host's own accesses to a device's address end the process.
  void* const place = NextAddresses(length);
  void* closed = mmap(place, length, PROT_NONE, MAP_SHARED | (place == nullptr ? 0 : MAP_FIXED), physical->file, 0);
  void* alias = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, physical->file, 0);
  if (closed == MAP_FAILED || alias == MAP_FAILED) std::abort();
  const auto address = reinterpret_cast<cuda::DevicePointer>(closed);
  TheState().memory[address] = {.device = physical->device,
                                .bytes = physical->bytes,
                                .alias = static_cast<char*>(alias),
                                .physical = std::move(physical)};
  return address;
}

// The address stays taken, so that no later memory makes an old pointer good again. But its pages go.
void Remove(cuda::DevicePointer address) {
  const Allocation gone = TheState().memory.at(address);
  munmap(gone.alias, gone.physical->length());
  mmap(reinterpret_cast<void*>(address), gone.physical->length(), PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  TheState().memory.erase(address);
}

// As a driver does, frees memory when the work that may use it has ended. New work does not find it from the beginning.
cuda::Result Free(cuda::DevicePointer address, bool imported) {
  State& state = TheState();
  std::vector<std::pair<std::shared_ptr<Queue>, int64_t>> waits;
  {
    const std::lock_guard lock(state.mutex);
    const auto found = state.memory.find(address);
    if (found == state.memory.end() || found->second.leaving || found->second.reservation != 0 ||
        found->second.physical->imported != imported) {
      return cuda::kInvalidValue;
    }
    found->second.leaving = true;
    waits = state.AllWork();
  }
  for (const auto& [queue, ticket] : waits) queue->Await(ticket);
  const std::lock_guard lock(state.mutex);
  Remove(address);
  return cuda::kSuccess;
}

// Maps shared pages a second time. Private ones cannot be, and are reached at their address.
char* SecondMapping(void* memory, size_t bytes) {
  void* pages = mremap(memory, 0, bytes, MREMAP_MAYMOVE);
  if (pages == MAP_FAILED) return static_cast<char*>(memory);
  madvise(pages, bytes, MADV_DONTFORK);
  return static_cast<char*>(pages);
}

}  // namespace
}  // namespace cairn::stand_in

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
  CAIRN_ENTER_UNSAFE();
  if (bytes == 0) return kInvalidValue;
  const std::lock_guard lock(TheState().mutex);
  const int device = DeviceOf(Current().back());
  if (TheState().UsedBytes(device) + static_cast<int64_t>(bytes) > TheState().settings.device_bytes)
    return kOutOfMemory;
  *address = Place(std::make_shared<Physical>(device, bytes, 0));
  return kSuccess;
}

Result cuMemFree_v2(DevicePointer address) {
  CAIRN_ENTER_UNSAFE();
  return Free(address, false);
}

Result cuMemGetAddressRange_v2(DevicePointer* base, size_t* bytes, DevicePointer address) {
  CAIRN_ENTER(true);
  const std::lock_guard lock(TheState().mutex);
  size_t offset = 0;
  const Allocation* found = TheState().Find(address, 1, &offset, kAccessRead);
  if (found == nullptr) return kNotFound;
  *base = address - offset;
  *bytes = found->bytes;
  return kSuccess;
}

Result cuIpcGetMemHandle(IpcMemoryHandle* handle, DevicePointer address) {
  CAIRN_ENTER(true);
  const std::lock_guard lock(TheState().mutex);
  size_t offset = 0;
  const Allocation* found = TheState().Find(address, 1, &offset);
  if (found == nullptr || found->reservation != 0 || found->physical->imported) return kInvalidValue;
  found->physical->exported = true;
  const MemoryName name = {.process = getpid(), .file = found->physical->file, .id = found->physical->id};
  *handle = {};
  std::memcpy(handle->bytes, &name, sizeof name);
  return kSuccess;
}

Result cuIpcOpenMemHandle_v2(DevicePointer* address, IpcMemoryHandle handle, unsigned flags) {
  CAIRN_ENTER(true);
  if (flags != kIpcLazyPeerAccess) return kInvalidValue;
  MemoryName name;
  std::memcpy(&name, handle.bytes, sizeof name);
  // As a driver's, the handle names a process, which is to be found only within one namespace.
  if (name.process == getpid()) return kInvalidContext;
  const std::lock_guard lock(TheState().mutex);
  std::shared_ptr<Physical> physical = Physical::Import(name);
  if (physical == nullptr) return kInvalidContext;
  if (physical->device != DeviceOf(Current().back())) return kInvalidContext;
  *address = Place(std::move(physical));
  return kSuccess;
}

Result cuIpcCloseMemHandle(DevicePointer address) {
  CAIRN_ENTER(true);
  return Free(address, true);
}

Result cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  CAIRN_ENTER_UNSAFE();
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  const int64_t pinned = state.RegisteredBytes() + state.BytesOf(state.host_allocations);
  if (pinned + static_cast<int64_t>(bytes) > state.settings.pinnable_bytes) return kOutOfMemory;
  void* found = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (found == MAP_FAILED) return kOutOfMemory;
  state.host_allocations[reinterpret_cast<uintptr_t>(found)] = bytes;
  *memory = found;
  return kSuccess;
}

Result cuMemFreeHost(void* memory) {
  CAIRN_ENTER_UNSAFE();
  const std::lock_guard lock(TheState().mutex);
  const auto found = TheState().host_allocations.find(reinterpret_cast<uintptr_t>(memory));
  if (found == TheState().host_allocations.end()) return kInvalidValue;
  munmap(memory, found->second);
  TheState().host_allocations.erase(found);
  return kSuccess;
}

Result cuMemHostRegister_v2(void* memory, size_t bytes, unsigned flags) {
  CAIRN_ENTER_UNSAFE();
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  const uintptr_t begin = reinterpret_cast<uintptr_t>(memory);
  if (bytes == 0 || memory == nullptr) return kInvalidValue;
  if ((flags & kMemHostRegisterReadOnly) == 0 && !IsWritable(begin)) return kInvalidValue;
  if (state.KindOf(begin, bytes) != HostKind::kPageable) return kHostMemoryAlreadyRegistered;
  const int64_t pinned = state.RegisteredBytes() + state.BytesOf(state.host_allocations);
  if (pinned + static_cast<int64_t>(bytes) > state.settings.pinnable_bytes) return kOutOfMemory;
  state.registered[begin] = {.bytes = bytes, .pages = SecondMapping(memory, bytes)};
  return kSuccess;
}

Result cuMemHostUnregister(void* memory) {
  CAIRN_ENTER_UNSAFE();
  const std::lock_guard lock(TheState().mutex);
  const auto found = TheState().registered.find(reinterpret_cast<uintptr_t>(memory));
  if (found == TheState().registered.end()) return kHostMemoryNotRegistered;
  if (found->second.pages != memory) munmap(found->second.pages, found->second.bytes);
  TheState().registered.erase(found);
  return kSuccess;
}

Result cuPointerGetAttributes(unsigned count, int* attributes, void** data, DevicePointer address) {
  CAIRN_ENTER(false);
  const std::lock_guard lock(TheState().mutex);
  size_t offset = 0;
  const Allocation* found = TheState().Find(address, 1, &offset, kAccessNone);
  const bool pinned = TheState().KindOf(static_cast<uintptr_t>(address), 1) == HostKind::kPinned;
  for (unsigned i = 0; i < count; ++i) {
    int value = 0;
    switch (attributes[i]) {
      case kPointerMemoryType:
        value = found != nullptr ? kMemoryTypeDevice : pinned ? kMemoryTypeHost : 0;
        break;
      case kPointerDeviceOrdinal:
        value = found != nullptr ? found->device : pinned ? 0 : kDeviceInvalid;
        break;
      case kPointerLegacyIpcCapable:
        value = found != nullptr && found->reservation == 0 && !found->physical->imported ? 1 : 0;
        break;
      default:
        return kInvalidValue;
    }
    std::memcpy(data[i], &value, sizeof value);
  }
  return kSuccess;
}

Result cuPointerGetAttribute(void* data, int attribute, DevicePointer address) {
  CAIRN_ENTER(false);
  const std::lock_guard lock(TheState().mutex);
  size_t offset = 0;
  const Allocation* found = TheState().Find(address, 1, &offset, kAccessNone);
  int value = 0;
  if (found != nullptr && attribute == kPointerAllowedHandleTypes) {
    const unsigned long long types = found->physical->handle_types;
    std::memcpy(data, &types, sizeof types);
    return kSuccess;
  }
  if (found != nullptr && attribute == kPointerLegacyIpcCapable) {
    value = found->reservation == 0 && !found->physical->imported ? 1 : 0;
  } else if (found != nullptr) {
    value = attribute == kPointerMemoryType ? kMemoryTypeDevice : found->device;
  } else if (TheState().KindOf(static_cast<uintptr_t>(address), 1) == HostKind::kPinned) {
    value = attribute == kPointerMemoryType ? kMemoryTypeHost : 0;
  } else {
    return kInvalidValue;
  }
  if (attribute != kPointerMemoryType && attribute != kPointerDeviceOrdinal && attribute != kPointerLegacyIpcCapable) {
    return kNotSupported;
  }
  std::memcpy(data, &value, sizeof value);
  return kSuccess;
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
