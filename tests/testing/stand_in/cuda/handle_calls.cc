// The stand-in's calls for memory that is made, mapped and handed to other processes by handles.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "gpu/driver/driver_api.h"
#include "tests/testing/stand_in/cuda/entry.h"
#include "tests/testing/stand_in/cuda/state.h"

namespace cairn::stand_in {
namespace {

// As drivers have it on devices with large pages.
constexpr size_t kGranularity = size_t{2} << 20;

bool IsWhole(size_t bytes) { return bytes > 0 && bytes % kGranularity == 0; }

// A handle of memory, or one more reference to it.
cuda::AllocationHandle Refer(std::shared_ptr<Physical> physical) {
  const cuda::AllocationHandle number = physical->handle;
  State::Handle& handle = TheState().handles[number];
  handle.physical = std::move(physical);
  ++handle.references;
  return number;
}

// The reservation that has these addresses; end() if none has all of them.
auto ReservationOf(cuda::DevicePointer address, size_t bytes) {
  auto& reservations = TheState().reservations;
  auto next = reservations.upper_bound(address);
  if (next == reservations.begin()) return reservations.end();
  --next;
  const size_t offset = static_cast<size_t>(address - next->first);
  return offset <= next->second.bytes && bytes <= next->second.bytes - offset ? next : reservations.end();
}

// The mappings that make up this range of a reservation exactly; none if there are no such.
std::vector<cuda::DevicePointer> MappingsOf(cuda::DevicePointer address, size_t bytes) {
  std::vector<cuda::DevicePointer> found;
  cuda::DevicePointer at = address;
  while (at < address + bytes) {
    const auto mapping = TheState().memory.find(at);
    if (mapping == TheState().memory.end() || mapping->second.reservation == 0) return {};
    found.push_back(at);
    at += mapping->second.bytes;
  }
  return at == address + bytes ? found : std::vector<cuda::DevicePointer>();
}

}  // namespace
}  // namespace cairn::stand_in

// NOLINTBEGIN(readability-identifier-naming): the names are the driver's.
using namespace cairn::stand_in;
using namespace cairn::cuda;

extern "C" {

Result cuMemGetAllocationGranularity(size_t* granularity, const AllocationProperties*, int) {
  CAIRN_ENTER(false);
  *granularity = kGranularity;
  return kSuccess;
}

Result cuMemCreate(AllocationHandle* handle, size_t bytes, const AllocationProperties* properties,
                   unsigned long long flags) {
  CAIRN_ENTER(false);
  const std::lock_guard lock(TheState().mutex);
  const int device = properties->location.device;
  if (!IsWhole(bytes) || flags != 0 || properties->type != kAllocationPinned ||
      properties->location.type != kLocationDevice ||
      (properties->handle_types & ~static_cast<int>(kHandlePosix | kHandleFabric)) != 0) {
    return kInvalidValue;
  }
  if (device < 0 || device >= TheState().settings.devices) return kInvalidDevice;
  if ((properties->handle_types & static_cast<int>(kHandleFabric)) != 0 && TheState().settings.fabric == 0)
    return kNotPermitted;
  if (TheState().UsedBytes(device) + static_cast<int64_t>(bytes) > TheState().settings.device_bytes)
    return kOutOfMemory;
  *handle = Refer(std::make_shared<Physical>(device, bytes, static_cast<unsigned long long>(properties->handle_types)));
  return kSuccess;
}

Result cuMemRelease(AllocationHandle handle) {
  CAIRN_ENTER(false);
  const std::lock_guard lock(TheState().mutex);
  const auto found = TheState().handles.find(handle);
  if (found == TheState().handles.end()) return kInvalidValue;
  if (--found->second.references == 0) TheState().handles.erase(found);
  return kSuccess;
}

Result cuMemRetainAllocationHandle(AllocationHandle* handle, void* address) {
  CAIRN_ENTER(false);
  const std::lock_guard lock(TheState().mutex);
  size_t offset = 0;
  const Allocation* found = TheState().Find(reinterpret_cast<DevicePointer>(address), 1, &offset, kAccessNone);
  if (found == nullptr || found->reservation == 0) return kInvalidValue;
  *handle = Refer(found->physical);
  return kSuccess;
}

Result cuMemGetAllocationPropertiesFromHandle(AllocationProperties* properties, AllocationHandle handle) {
  CAIRN_ENTER(false);
  const std::lock_guard lock(TheState().mutex);
  const auto found = TheState().handles.find(handle);
  if (found == TheState().handles.end()) return kInvalidValue;
  *properties = {};
  properties->handle_types = static_cast<int>(found->second.physical->handle_types);
  properties->location.device = found->second.physical->device;
  return kSuccess;
}

Result cuMemExportToShareableHandle(void* shareable, AllocationHandle handle, int type, unsigned long long flags) {
  CAIRN_ENTER(false);
  const std::lock_guard lock(TheState().mutex);
  const auto found = TheState().handles.find(handle);
  const bool fabric = type == static_cast<int>(kHandleFabric);
  if (found == TheState().handles.end() || flags != 0 || (!fabric && type != static_cast<int>(kHandlePosix)) ||
      (found->second.physical->handle_types & static_cast<unsigned>(type)) == 0) {
    return kInvalidValue;
  }
  Physical& physical = *found->second.physical;
  physical.exported = true;
  if (fabric) {
    const MemoryName name = {.process = getpid(), .file = physical.file, .id = physical.id};
    FabricHandle handle_bytes;
    std::memcpy(handle_bytes.bytes, &name, sizeof name);
    std::memcpy(shareable, &handle_bytes, sizeof handle_bytes);
    return kSuccess;
  }
  const int file = fcntl(physical.file, F_DUPFD_CLOEXEC, 3);
  if (file < 0) return kUnknown;
  std::memcpy(shareable, &file, sizeof file);
  return kSuccess;
}

Result cuMemImportFromShareableHandle(AllocationHandle* handle, void* shareable, int type) {
  CAIRN_ENTER(false);
  std::shared_ptr<Physical> physical;
  const std::lock_guard lock(TheState().mutex);
  if (type == static_cast<int>(kHandlePosix)) {
    physical = Physical::Import(static_cast<int>(reinterpret_cast<intptr_t>(shareable)), 0);
  } else if (type == static_cast<int>(kHandleFabric)) {
    if (TheState().settings.fabric == 0) return kNotPermitted;
    MemoryName name;
    std::memcpy(&name, shareable, sizeof name);
    physical = Physical::Import(name);
  }
  if (physical == nullptr) return kInvalidValue;
  *handle = Refer(std::move(physical));
  return kSuccess;
}

Result cuMemAddressReserve(DevicePointer* address, size_t bytes, size_t, DevicePointer, unsigned long long flags) {
  CAIRN_ENTER(false);
  if (!IsWhole(bytes) || flags != 0) return kInvalidValue;
  // Both are as far from each other as they are long, so mappings that follow one another do so for the host too.
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* closed = mmap(nullptr, bytes, PROT_NONE, kFlags, -1, 0);
  void* alias = mmap(nullptr, bytes, PROT_NONE, kFlags, -1, 0);
  if (closed == MAP_FAILED || alias == MAP_FAILED) return kOutOfMemory;
  const std::lock_guard lock(TheState().mutex);
  *address = reinterpret_cast<DevicePointer>(closed);
  TheState().reservations[*address] = {.bytes = bytes, .alias = static_cast<char*>(alias)};
  return kSuccess;
}

Result cuMemAddressFree(DevicePointer address, size_t bytes) {
  CAIRN_ENTER(false);
  const std::lock_guard lock(TheState().mutex);
  const auto found = TheState().reservations.find(address);
  if (found == TheState().reservations.end() || found->second.bytes != bytes) return kInvalidValue;
  const auto mapped = TheState().memory.lower_bound(address);
  if (mapped != TheState().memory.end() && mapped->first < address + bytes) return kInvalidValue;
  munmap(found->second.alias, bytes);
  munmap(reinterpret_cast<void*>(address), bytes);
  TheState().reservations.erase(found);
  return kSuccess;
}

Result cuMemMap(DevicePointer address, size_t bytes, size_t offset, AllocationHandle handle, unsigned long long flags) {
  CAIRN_ENTER(false);
  const std::lock_guard lock(TheState().mutex);
  const auto reserved = ReservationOf(address, bytes);
  const auto found = TheState().handles.find(handle);
  if (reserved == TheState().reservations.end() || found == TheState().handles.end() || offset != 0 || flags != 0 ||
      !IsWhole(bytes) || bytes > found->second.physical->bytes || (address - reserved->first) % kGranularity != 0) {
    return kInvalidValue;
  }
  auto next = TheState().memory.lower_bound(address);
  if (next != TheState().memory.end() && next->first < address + bytes) return kInvalidValue;
  if (next != TheState().memory.begin() && (--next)->first + next->second.bytes > address) return kInvalidValue;
  char* alias = reserved->second.alias + (address - reserved->first);
  if (mmap(alias, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, found->second.physical->file, 0) ==
      MAP_FAILED) {
    return kOutOfMemory;
  }
  TheState().memory[address] = {.device = found->second.physical->device,
                                .bytes = bytes,
                                .alias = alias,
                                .physical = found->second.physical,
                                .access = kAccessNone,
                                .reservation = reserved->first};
  return kSuccess;
}

Result cuMemUnmap(DevicePointer address, size_t bytes) {
  CAIRN_ENTER(false);
  std::vector<std::pair<std::shared_ptr<Queue>, int64_t>> waits;
  {
    const std::lock_guard lock(TheState().mutex);
    if (MappingsOf(address, bytes).empty()) return kInvalidValue;
    waits = TheState().AllWork();
  }
  for (const auto& [queue, ticket] : waits) queue->Await(ticket);
  const std::lock_guard lock(TheState().mutex);
  for (const DevicePointer mapping : MappingsOf(address, bytes)) {
    const Allocation& gone = TheState().memory.at(mapping);
    mmap(gone.alias, gone.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    TheState().memory.erase(mapping);
  }
  return kSuccess;
}

Result cuMemSetAccess(DevicePointer address, size_t bytes, const MemoryAccess* access, size_t count) {
  CAIRN_ENTER(false);
  const std::lock_guard lock(TheState().mutex);
  const std::vector<DevicePointer> mappings = MappingsOf(address, bytes);
  if (mappings.empty() || count != 1) return kInvalidValue;
  for (const DevicePointer mapping : mappings) {
    Allocation& mapped = TheState().memory.at(mapping);
    // It has no devices that reach each other's memory.
    if (access->location.device != mapped.device) return kInvalidDevice;
    mapped.access = access->flags;
  }
  return kSuccess;
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
