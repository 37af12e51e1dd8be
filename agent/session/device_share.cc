#include "agent/session/device_share.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// One message may carry so many descriptors.
constexpr int kMostOffered = 64;
// With blocks of 2 MiB each, these are 4 TB.
constexpr size_t kMostBlocks = size_t{1} << 21;
constexpr int kMostCopies = 1 << 21;
constexpr int kMostIpc = 1 << 16;
constexpr size_t kIpcHandleBytes = 64;
constexpr size_t kUuidBytes = 16;

}  // namespace

absl::Status DeviceShare::Bad(const std::string& what) const {
  return MakeError(Reason::kBadRequest, absl::StrCat("rank ", context_.options.rank, ": ", what),
                   {{"rank", absl::StrCat(context_.options.rank)}});
}

absl::StatusOr<v1::OfferDeviceMemoryResponse> DeviceShare::Offer(const v1::OfferDeviceMemoryRequest& request) {
  v1::OfferDeviceMemoryResponse response;
  if (request.end()) {
    End();
    return response;
  }
  if (!refused_.empty()) {
    response.set_refused(std::exchange(refused_, ""));
    return response;
  }
  if (!offer_.has_value() || offer_->number != request.number()) {
    if (request.block_bytes_size() > kMostOffered) return Bad("more than 64 blocks are offered at once");
    if (blocks_.size() + static_cast<size_t>(request.block_bytes_size()) > kMostBlocks) return Bad("too many blocks");
    for (const uint64_t bytes : request.block_bytes()) {
      if (bytes == 0) return Bad("a block of no bytes is offered");
    }
    for (const uint32_t at : request.fabric_blocks()) {
      if (at >= static_cast<uint32_t>(request.block_bytes_size()))
        return Bad("a block that is not offered has a handle");
    }
    if (running_.has_value() || (offer_.has_value() && !offer_->taken)) {
      response.set_pending(true);
      return response;
    }
    Drop(request);
    if (request.block_bytes_size() == 0) return response;
    shares_ = true;
    offer_ = Offered{.number = request.number(), .id = next_++};
    std::vector<DeviceBlock> blocks;
    for (const uint64_t bytes : request.block_bytes()) {
      const uint64_t id = next_++;
      offer_->blocks.push_back(id);
      blocks_[id] = {.bytes = bytes};
      blocks.push_back({.id = id, .bytes = bytes});
    }
    for (const uint32_t at : request.fabric_blocks()) blocks[at].fabric = true;
    context_.Do(action::AwaitDeviceMemory{offer_->id, std::move(blocks)});
  }
  if (offer_->descriptor_id == 0) {
    response.set_pending(true);
    return response;
  }
  response.mutable_blocks()->Assign(offer_->blocks.begin(), offer_->blocks.end());
  response.set_descriptor_id(offer_->descriptor_id);
  return response;
}

void DeviceShare::Drop(const v1::OfferDeviceMemoryRequest& request) {
  std::vector<uint64_t> dropped;
  for (const uint64_t id : request.dropped_blocks()) {
    if (blocks_.erase(id) > 0) dropped.push_back(id);  // one that is not known went with a process
  }
  if (!dropped.empty()) context_.Do(action::DropDeviceMemory{std::move(dropped)});
}

void DeviceShare::Forget() {
  offer_.reset();
  blocks_.clear();
}

void DeviceShare::End() {
  Forget();
  refused_.clear();
  if (running_.has_value()) copy_.stopping = true;
  if (std::exchange(shares_, false)) context_.Do(action::EndDeviceMemory());
}

void DeviceShare::OnOfferOpened(uint64_t offer, uint64_t descriptor_id) {
  if (offer_.has_value() && offer_->id == offer) offer_->descriptor_id = descriptor_id;
}

void DeviceShare::OnOfferTaken(uint64_t offer, const absl::Status& status) {
  if (!offer_.has_value() || offer_->id != offer) return;
  if (!status.ok()) {
    End();
    refused_ = std::string(status.message());
    return;
  }
  offer_->taken = true;
  for (const uint64_t id : offer_->blocks) {
    if (const auto block = blocks_.find(id); block != blocks_.end()) block->second.taken = true;
  }
}

absl::StatusOr<v1::CopyFromDeviceResponse> DeviceShare::Copy(const v1::CopyFromDeviceRequest& request) {
  if (request.number() == 0) return Bad("calls are counted from 1");
  const bool repeated = copy_.number == request.number() && copy_.trainer == request.trainer_incarnation();
  if (repeated && copy_.ended) return Tell();
  CAIRN_ASSIGN_OR_RETURN(const RankSave* save, saves_.FindStaging(request.save(), request.trainer_incarnation()));
  if (repeated) return Tell();
  v1::CopyFromDeviceResponse response;
  if (running_.has_value()) {
    response.set_refused("the copies of an earlier save have not ended yet");
    return response;
  }
  if (!refused_.empty()) {
    response.set_refused(std::exchange(refused_, ""));
    return response;
  }
  CAIRN_ASSIGN_OR_RETURN(Wanted wanted, Read(request, *save));
  response.set_blocks_lost(wanted.lost);
  response.set_pending(!wanted.lost && wanted.awaited);
  if (wanted.lost || wanted.awaited) return response;
  copy_ = CopyState{.number = request.number(),
                    .id = next_++,
                    .save = save->id(),
                    .trainer = save->trainer(),
                    .parts = std::make_shared<const std::vector<DeviceMemoryPart>>(std::move(wanted.parts))};
  running_ = copy_.id;
  shares_ = true;
  slab_.use().AgentCopies();
  context_.Do(action::CopyFromDevice{copy_.id, slab_.made()->descriptor_id, copy_.parts, std::move(wanted.ipc),
                                     save->stage_deadline()});
  response.set_pending(true);
  return response;
}

absl::StatusOr<DeviceShare::Wanted> DeviceShare::Read(const v1::CopyFromDeviceRequest& request, const RankSave& save) {
  Wanted wanted;
  if (!slab_.made().has_value() || request.copies_size() == 0 || request.copies_size() > kMostCopies ||
      request.ipc_handles_size() > kMostIpc) {
    return Bad("no copies were asked for, or too many");
  }
  for (const v1::IpcMemory& memory : request.ipc_handles()) {
    if (memory.handle().size() != kIpcHandleBytes || memory.device_uuid().size() != kUuidBytes || memory.bytes() == 0) {
      return Bad("a handle of CUDA IPC has another length");
    }
    wanted.ipc.push_back({next_++, memory.bytes(), memory.handle(), memory.device_uuid()});
  }
  uint64_t item_done = 0;
  for (int i = 0; i < request.copies_size(); ++i) {
    const v1::DeviceMemoryCopy& copy = request.copies(i);
    const uint32_t item = copy.item();
    if (item >= save.layout()->shard_count || save.staged()->slab_offset[item] == SaveImage::kNotStaged) {
      return Bad(absl::StrCat("item ", item, " has no place in the staging buffer"));
    }
    const StoredItem& stored = save.layout()->items[item];
    if (copy.bytes() == 0 || copy.item_offset() != item_done || copy.bytes() > stored.bytes() - item_done) {
      return Bad(absl::StrCat("a copy of ", stored.name, " does not go on where the last one ended"));
    }
    item_done += copy.bytes();
    if (item_done == stored.bytes()) {
      item_done = 0;
    } else if (i + 1 == request.copies_size() || request.copies(i + 1).item() != item) {
      return Bad(absl::StrCat("the copies of ", stored.name, " leave some of it out"));
    }
    DeviceMemoryPart part = {.item = item,
                             .offset = copy.memory_offset(),
                             .slab_offset = save.staged()->slab_offset[item] + copy.item_offset(),
                             .bytes = copy.bytes()};
    uint64_t size = 0;
    if (copy.has_ipc()) {
      if (copy.ipc() >= wanted.ipc.size()) return Bad(absl::StrCat(stored.name, " is in memory that was not given"));
      part.block = wanted.ipc[copy.ipc()].id;
      size = wanted.ipc[copy.ipc()].bytes;
    } else {
      const auto block = blocks_.find(copy.block());
      wanted.lost = wanted.lost || block == blocks_.end();
      if (block == blocks_.end()) continue;
      wanted.awaited = wanted.awaited || !block->second.taken;
      part.block = block->first;
      size = block->second.bytes;
    }
    if (part.offset > size || part.bytes > size - part.offset) {
      return Bad(absl::StrCat("a copy of ", stored.name, " leaves its memory"));
    }
    wanted.parts.push_back(part);
  }
  return wanted;
}

absl::StatusOr<v1::CopyFromDeviceResponse> DeviceShare::Tell() const {
  if (copy_.ended && !copy_.error.ok()) return copy_.error;
  v1::CopyFromDeviceResponse response = copy_.answer;
  response.set_pending(!copy_.ended);
  return response;
}

void DeviceShare::OnCopied(uint64_t copy, absl::StatusOr<DeviceCopied> copied) {
  if (running_ != copy) return;
  running_.reset();
  slab_.use().AgentCopiesEnded();
  copy_.ended = true;
  if (!copied.ok() || copied->kind == DeviceCopied::Kind::kLost) Forget();
  if (!copied.ok()) {
    const std::string rank = absl::StrCat(context_.options.rank);
    copy_.error = Annotate(copied.status(), absl::StrCat("rank ", rank), {{"rank", rank}, {"ranks", rank}});
    return;
  }
  copy_.answer.set_blocks_lost(copied->kind == DeviceCopied::Kind::kLost);
  if (copied->kind == DeviceCopied::Kind::kRefused) copy_.answer.set_refused(copied->why);
  copy_.answer.set_unchecked(copied->unchecked);
  copy_.answer.set_unpinned(copied->unpinned);
  const auto save = saves_.FindStaging(copy_.save, copy_.trainer);
  if (save.ok() && copied->kind == DeviceCopied::Kind::kDone) TakeChecksums(*copied, **save);
}

void DeviceShare::TakeChecksums(const DeviceCopied& copied, RankSave& save) {
  if (copied.checksums.size() != copy_.parts->size()) return;
  // All parts of an item follow one another.
  std::map<uint32_t, uint32_t> items;
  for (size_t i = 0; i < copied.checksums.size(); ++i) {
    const DeviceMemoryPart& part = (*copy_.parts)[i];
    const auto [item, first] = items.try_emplace(part.item, copied.checksums[i]);
    if (!first) item->second = CombineCrc32c(item->second, copied.checksums[i], part.bytes);
  }
  save.TakeDeviceChecksums(items);
  copy_.answer.set_checked_items(items.size());
}

void DeviceShare::Advance() {
  if (!running_.has_value() || copy_.stopping || saves_.FindStaging(copy_.save, copy_.trainer).ok()) return;
  copy_.stopping = true;
  context_.Do(action::StopDeviceCopy{copy_.id});
}

}  // namespace cairn
