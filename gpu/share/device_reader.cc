#include "gpu/share/device_reader.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "gpu/copy/fabric_file.h"

namespace cairn {
namespace {

// Two million blocks of 2 MiB are 4 TB, which is more than the devices of any machine.
constexpr size_t kMostBlocks = size_t{1} << 21;
// The size of pieces to pin. The driver's other calls wait while it pins a piece.
constexpr int64_t kPiece = int64_t{256} << 20;

absl::Status Bad(const std::string& what) { return MakeError(Reason::kBadRequest, what); }

worker::DeviceEvent RefusedBecause(const std::string& why) {
  worker::DeviceEvent event;
  event.mutable_refused()->set_error(why);
  return event;
}

}  // namespace

DeviceReader::~DeviceReader() {
  if (driver_ == nullptr || failed_) return;
  for (auto& [ordinal, digest] : digests_) {
    GiveBack(ordinal, [&digest = digest] { digest.Free(); });
  }
  for (const auto& [id, block] : blocks_) Release(block);
  UnmapSlab();
}

void DeviceReader::Open() {
  if (driver_ != nullptr) return;
  std::string error;
  const GpuDriver* driver = GpuDriver::Open(library_, &error);
  if (driver == nullptr) throw DriverFailure{error};
  if (!driver->shares_memory()) throw DriverFailure{"the driver is older than 11.4, and cannot share memory"};
  driver_ = driver;
  pinned_ = std::make_unique<PinnedMemory>(*driver_);
}

DeviceContext& DeviceReader::Device(int ordinal) {
  const auto found = devices_.find(ordinal);
  if (found != devices_.end()) return *found->second;
  auto made = std::make_unique<DeviceContext>(*driver_, ordinal);  // before the map is changed, because it may throw
  return *devices_.emplace(ordinal, std::move(made)).first->second;
}

int DeviceReader::OrdinalOf(const std::string& uuid) {
  int count = 0;
  Require(*driver_, driver_->call().device_get_count(&count), "cuDeviceGetCount");
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    cuda::Device device = 0;
    cuda::Uuid found;
    Require(*driver_, driver_->call().device_get(&device, ordinal), "cuDeviceGet");
    Require(*driver_, driver_->call().device_get_uuid(&found, device), "cuDeviceGetUuid");
    if (uuid == std::string(found.bytes, sizeof(found.bytes))) return ordinal;
  }
  throw DriverFailure{"the agent does not see the trainer's device; look at CUDA_VISIBLE_DEVICES of both"};
}

template <typename Calls>
void DeviceReader::GiveBack(int ordinal, const Calls& calls) {
  try {
    const CurrentContext current(*driver_, Device(ordinal));
    calls();
  } catch (const DriverFailure&) {
    return;  // the memory of a broken context is freed with the process
  }
}

absl::StatusOr<worker::DeviceEvent> DeviceReader::Handle(const worker::DeviceRequest& request,
                                                         const UniqueFd& descriptor) {
  if (failed_) return Bad("a copy has failed before");
  switch (request.request_case()) {
    case worker::DeviceRequest::kImportBlock:
      return Import(request.import_block(), descriptor);
    case worker::DeviceRequest::kDropBlocks:
      return Drop(request.drop_blocks());
    case worker::DeviceRequest::kMapSlab:
      return MapSlab(request.map_slab(), descriptor);
    case worker::DeviceRequest::kCopyToSlab:
      return Copy(request.copy_to_slab());
    case worker::DeviceRequest::REQUEST_NOT_SET:
      break;
  }
  return Bad("an unknown request");
}

absl::StatusOr<worker::DeviceEvent> DeviceReader::Import(const worker::ImportBlock& request,
                                                         const UniqueFd& descriptor) {
  const bool ipc = !request.ipc_handle().empty();
  if (blocks_.contains(request.block()) || blocks_.size() >= kMostBlocks || request.bytes() == 0 ||
      (ipc && request.ipc_handle().size() != sizeof(cuda::IpcMemoryHandle))) {
    return Bad("a block that is known, one too many, or none");
  }
  if (!ipc && !descriptor.valid()) return Bad("a block without a descriptor");
  try {
    Open();
    blocks_[request.block()] = ipc ? ImportIpc(request.ipc_handle(), request.device_uuid(), request.bytes())
                                   : ImportDescriptor(descriptor.get(), request.bytes(), request.fabric());
  } catch (const DriverFailure& failure) {
    blocks_.erase(request.block());
    return RefusedBecause(failure.text);
  }
  worker::DeviceEvent event;
  event.mutable_imported()->set_block(request.block());
  return event;
}

DeviceReader::Block DeviceReader::ImportDescriptor(int descriptor, uint64_t bytes, bool fabric) {
  const cuda::Functions& call = driver_->call();
  cuda::AllocationHandle handle = 0;
  cuda::FabricHandle shared;
  if (fabric && !ReadFabricFile(descriptor, shared)) throw DriverFailure{"a descriptor brings no fabric handle"};
  void* const from = fabric ? static_cast<void*>(&shared) : reinterpret_cast<void*>(static_cast<intptr_t>(descriptor));
  Require(*driver_,
          call.memory_import(&handle, from, static_cast<int>(fabric ? cuda::kHandleFabric : cuda::kHandlePosix)),
          "cuMemImportFromShareableHandle");
  Block block = {.bytes = bytes};
  try {
    Map(handle, block);
  } catch (const DriverFailure&) {
    call.memory_release(handle);
    throw;
  }
  call.memory_release(handle);  // the mapping keeps the memory
  return block;
}

void DeviceReader::Map(cuda::AllocationHandle handle, Block& block) {
  const cuda::Functions& call = driver_->call();
  cuda::AllocationProperties properties;
  Require(*driver_, call.memory_get_properties(&properties, handle), "cuMemGetAllocationPropertiesFromHandle");
  block.ordinal = properties.location.device;
  const CurrentContext current(*driver_, Device(block.ordinal));
  Require(*driver_, call.address_reserve(&block.address, block.bytes, 0, 0, 0), "cuMemAddressReserve");
  cuda::Result result = call.memory_map(block.address, block.bytes, 0, handle, 0);
  if (result != cuda::kSuccess) {
    call.address_free(block.address, block.bytes);
    Require(*driver_, result, "cuMemMap");
  }
  const cuda::MemoryAccess access = {.location = {.device = block.ordinal}, .flags = cuda::kAccessRead};
  result = call.memory_set_access(block.address, block.bytes, &access, 1);
  if (result != cuda::kSuccess) {
    Release(block);
    Require(*driver_, result, "cuMemSetAccess");
  }
}

DeviceReader::Block DeviceReader::ImportIpc(const std::string& handle, const std::string& uuid, uint64_t bytes) {
  const cuda::Functions& call = driver_->call();
  Block block = {.ordinal = OrdinalOf(uuid), .bytes = bytes, .ipc = true};
  const CurrentContext current(*driver_, Device(block.ordinal));
  cuda::IpcMemoryHandle memory;
  std::memcpy(memory.bytes, handle.data(), sizeof(memory.bytes));
  Require(*driver_, call.ipc_open_memory(&block.address, memory, cuda::kIpcLazyPeerAccess), "cuIpcOpenMemHandle");
  // The handle does not tell the size of the memory, so it is checked here.
  cuda::DevicePointer begin = 0;
  size_t size = 0;
  const cuda::Result result = call.memory_get_range(&begin, &size, block.address);
  if (result != cuda::kSuccess || begin != block.address || size < bytes) {
    call.ipc_close_memory(block.address);
    Require(*driver_, result, "cuMemGetAddressRange");
    throw DriverFailure{"the memory of a CUDA IPC handle is smaller than the trainer says"};
  }
  return block;
}

void DeviceReader::Release(const Block& block) {
  GiveBack(block.ordinal, [&call = driver_->call(), &block] {
    if (block.ipc) {
      call.ipc_close_memory(block.address);
    } else {
      call.memory_unmap(block.address, block.bytes);
      call.address_free(block.address, block.bytes);
    }
  });
}

absl::StatusOr<worker::DeviceEvent> DeviceReader::Drop(const worker::DropBlocks& request) {
  for (const uint64_t id : request.blocks()) {
    const auto found = blocks_.find(id);
    if (found == blocks_.end()) return Bad("a block that is not known");
    Release(found->second);
    blocks_.erase(found);
  }
  worker::DeviceEvent event;
  event.mutable_dropped();
  return event;
}

absl::StatusOr<worker::DeviceEvent> DeviceReader::MapSlab(const worker::MapSlab& request, const UniqueFd& descriptor) {
  worker::DeviceEvent event;
  event.mutable_slab_mapped();
  if (request.bytes() == 0) {
    UnmapSlab();
    return event;
  }
  struct stat file = {};
  if (!descriptor.valid() || fstat(descriptor.get(), &file) != 0 || file.st_size < 0 ||
      request.bytes() > static_cast<uint64_t>(file.st_size)) {
    return Bad("a staging buffer without a descriptor, or larger than its file");
  }
  UnmapSlab();
  void* data = mmap(nullptr, request.bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.get(), 0);
  if (data == MAP_FAILED) {
    return RefusedBecause(absl::StrCat("mapping the staging buffer: ", std::generic_category().message(errno)));
  }
  slab_ = {.number = slab_.number + 1, .data = static_cast<char*>(data), .bytes = request.bytes()};
  try {
    Open();
    slab_.ordinal = devices_.empty() ? 0 : devices_.begin()->first;
    const CurrentContext current(*driver_, Device(slab_.ordinal));
    pinned_->Pin(slab_.number, slab_.data, static_cast<int64_t>(slab_.bytes), kPiece);
  } catch (const DriverFailure& failure) {
    event.mutable_slab_mapped()->set_unpinned(failure.text);
  }
  return event;
}

void DeviceReader::UnmapSlab() {
  if (slab_.data == nullptr) return;
  if (pinned_ != nullptr && !devices_.empty()) {
    GiveBack(slab_.ordinal, [this] { pinned_->Unpin(slab_.number); });
  }
  munmap(slab_.data, slab_.bytes);
  slab_.data = nullptr;
  slab_.bytes = 0;
}

absl::Status DeviceReader::Check(const worker::CopyToSlab& request) const {
  for (const worker::CopiedPart& part : request.parts()) {
    const auto found = blocks_.find(part.block());
    if (found == blocks_.end() || part.bytes() == 0 || part.offset() > found->second.bytes ||
        part.bytes() > found->second.bytes - part.offset() || part.slab_offset() > slab_.bytes ||
        part.bytes() > slab_.bytes - part.slab_offset()) {
      return Bad("a copy outside of its block or of the staging buffer");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<worker::DeviceEvent> DeviceReader::Copy(const worker::CopyToSlab& request) {
  CAIRN_RETURN_IF_ERROR(Check(request));
  std::map<int, Parts> by_device;
  for (int i = 0; i < request.parts_size(); ++i) {
    by_device[blocks_.at(request.parts(i).block()).ordinal].push_back(i);
  }
  worker::DeviceEvent event;
  worker::Copied& copied = *event.mutable_copied();
  try {
    copied.set_unchecked(BeginSums(request, by_device));
    failed_ = true;  // until the copies have ended, the device may write to the slab
    for (const auto& [ordinal, parts] : by_device) CopyParts(request, parts, Device(ordinal));
    for (const auto& [ordinal, parts] : by_device) {
      const CurrentContext current(*driver_, Device(ordinal));
      DeviceEvent done(*driver_);
      done.Record(Device(ordinal).stream());
      done.Await();
    }
  } catch (const DriverFailure& failure) {
    return MakeError(Reason::kDeviceError, failure.text);
  }
  failed_ = false;
  if (!copied.unchecked().empty()) return event;
  copied.mutable_checksums()->Resize(request.parts_size(), 0);
  for (const auto& [ordinal, parts] : by_device) {
    const DeviceDigest& digest = digests_.at(ordinal);
    for (size_t i = 0; i < parts.size(); ++i) copied.set_checksums(parts[i], digest.CrcOf(i));
  }
  return event;
}

std::string DeviceReader::BeginSums(const worker::CopyToSlab& request, const std::map<int, Parts>& by_device) {
  for (const auto& [ordinal, parts] : by_device) {
    const DeviceContext& device = Device(ordinal);
    const CurrentContext current(*driver_, device);
    std::vector<DeviceDigest::Array> arrays;
    for (const int i : parts) {
      const worker::CopiedPart& part = request.parts(i);
      arrays.push_back(
          {.address = blocks_.at(part.block()).address + part.offset(), .bytes = static_cast<int64_t>(part.bytes())});
    }
    try {
      DeviceDigest& digest = digests_.try_emplace(ordinal, *driver_).first->second;
      digest.Begin(arrays);
      digest.Sum(0, arrays.size(), device.stream());
      digest.Fetch(device.stream());
    } catch (const DriverFailure& failure) {
      return failure.text;  // for example no memory on the device; the copies do not need the checksums
    }
  }
  return "";
}

void DeviceReader::CopyParts(const worker::CopyToSlab& request, const Parts& parts, const DeviceContext& device) {
  const CurrentContext current(*driver_, device);
  auto* slab = reinterpret_cast<std::byte*>(slab_.data);
  std::vector<DeviceRows> rows;
  for (const int i : parts) {
    const worker::CopiedPart& part = request.parts(i);
    rows.push_back({.device = blocks_.at(part.block()).address + part.offset(),
                    .row_bytes = static_cast<int64_t>(part.bytes()),
                    .pitch = static_cast<int64_t>(part.bytes()),
                    .packed_offset = static_cast<int64_t>(part.slab_offset())});
  }
  EnqueueRows(*driver_, device.stream(), pinned_->Cut(slab_.number, rows, slab), true, slab);
}

}  // namespace cairn
