#include "agent/session/save_image.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/format/safetensors_header.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

uint64_t Padded(uint64_t bytes) { return (bytes + kDataAlignment - 1) / kDataAlignment * kDataAlignment; }

absl::Status Contradiction(std::string_view what) {
  return MakeError(Reason::kInternal,
                   absl::StrCat("the write plan contradicts itself: ", absl::string_view(what.data(), what.size())));
}

// A name of ours has no separators and cannot climb: "rank00003-bin01".
bool IsPlainName(const std::string& name) {
  if (name.empty() || name.size() > 200 || name[0] == '.') return false;
  for (char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
    if (!plain) return false;
  }
  return true;
}

Shape ToShape(const google::protobuf::RepeatedField<int64_t>& values) { return {values.begin(), values.end()}; }

// The item that a moved shard is in a file; its numbers come from the wire.
absl::StatusOr<StoredItem> ItemOf(const v1::MovedShard& moved) {
  StoredItem item;
  item.name = moved.name();
  const auto dtype = DTypeFromNumber(static_cast<int>(moved.dtype()));
  item.global_shape = ToShape(moved.global_shape());
  item.box = {ToShape(moved.offset()), ToShape(moved.shape())};
  const size_t ndim = item.global_shape.size();
  if (!dtype || item.box.offset.size() != ndim || item.box.shape.size() != ndim) {
    return Contradiction(absl::StrCat("the shard of ", item.name, " that moves from rank ", moved.from_rank(),
                                      " has no dtype or another number of dimensions than its tensor"));
  }
  item.dtype = *dtype;
  int64_t elements = 1;
  for (size_t d = 0; d < ndim; ++d) {
    const int64_t offset = item.box.offset[d], size = item.box.shape[d], global = item.global_shape[d];
    if (offset < 0 || size < 0 || size > global || offset > global - size ||
        __builtin_mul_overflow(elements, size, &elements)) {
      return Contradiction(absl::StrCat("the shard of ", item.name, " that moves from rank ", moved.from_rank(),
                                        " does not lie within its tensor"));
    }
  }
  if (moved.flat()) {
    if (moved.flat_begin() < 0 || moved.flat_begin() > moved.flat_end() || moved.flat_end() > elements) {
      return Contradiction(absl::StrCat("the flat shard of ", item.name, " does not lie within its box"));
    }
    item.flat = FlatRange{moved.flat_begin(), moved.flat_end()};
  }
  int64_t bytes = 0;
  if (__builtin_mul_overflow(elements, int64_t{BytesOf(item.dtype)}, &bytes)) {
    return Contradiction(absl::StrCat("the shard of ", item.name, " overflows"));
  }
  return item;
}

}  // namespace

absl::StatusOr<SaveImagePtr> MakeSaveImage(RankLayoutPtr layout, const v1::WritePlan& plan) {
  if (plan.layout_digest() != layout->digest) {
    return MakeError(Reason::kLayoutChanged, absl::StrCat("the plan ", DigestHex(plan.plan_digest()).substr(0, 12),
                                                          " was made for another layout of this rank"));
  }
  if (!layout->fault.ok()) return layout->fault;
  auto image = std::make_shared<SaveImage>();
  image->plan_digest = plan.plan_digest();
  image->rank = plan.rank();
  image->world_size = plan.world_size();
  image->total_files = plan.total_files();
  image->slab_offset.assign(layout->items.size(), SaveImage::kNotStaged);
  for (const v1::MovedShard& moved : plan.incoming_shards()) {
    if (moved.from_rank() == plan.rank()) return Contradiction("it moves a shard in from its own rank");
    CAIRN_ASSIGN_OR_RETURN(StoredItem item, ItemOf(moved));
    image->moved_in.push_back({moved.from_rank(), moved.from_shard(), std::move(item)});
  }
  std::vector<bool> written_in(image->moved_in.size());
  absl::flat_hash_set<std::string> names;
  for (const v1::PlannedFile& planned : plan.files()) {
    ImageFile file;
    file.name = planned.name();
    if (!IsPlainName(file.name) || !names.insert(file.name).second) {
      return Contradiction(absl::StrCat("a file is named \"", file.name.substr(0, 80), "\""));
    }
    file.slab_offset = image->slab_bytes;
    HeaderSizer sizer;
    if (image->file.empty()) {
      for (const auto& [name, target] : layout->aliases) sizer.AddAlias(name, target);
    }
    for (uint32_t number : planned.items()) {
      const size_t own = layout->items.size();
      if (number >= own + written_in.size()) return Contradiction("it names an item that the layout lacks");
      if (number < own ? image->slab_offset[number] != SaveImage::kNotStaged : written_in[number - own]) {
        return Contradiction("it writes an item twice");
      }
      const StoredItem& item = number < own ? layout->items[number] : image->moved_in[number - own].item;
      sizer.Add(item);
      if (number < own) {
        image->slab_offset[number] = file.slab_offset + planned.header_bytes() + file.data_bytes;
      } else {
        written_in[number - own] = true;
      }
      file.data_bytes += item.bytes();
      file.item.push_back(number);
    }
    file.header_bytes = planned.header_bytes();
    if (file.header_bytes != sizer.PaddedBytes() || file.data_bytes != planned.data_bytes()) {
      return Contradiction(absl::StrCat(file.name, " has ", file.header_bytes, " + ", planned.data_bytes(),
                                        " bytes in it, ", sizer.PaddedBytes(), " + ", file.data_bytes,
                                        " by its items"));
    }
    image->slab_bytes += Padded(file.bytes());
    image->file_bytes += file.bytes();
    image->file.push_back(std::move(file));
  }
  if (std::find(written_in.begin(), written_in.end(), false) != written_in.end()) {
    return Contradiction("it moves a shard in and does not write it");
  }
  for (const v1::MovedOut& moved : plan.outgoing_shards()) {
    if (moved.shard() >= layout->shard_count || image->slab_offset[moved.shard()] != SaveImage::kNotStaged ||
        moved.to_rank() == plan.rank()) {
      return Contradiction("it moves out what it writes itself or does not hold");
    }
    image->slab_offset[moved.shard()] = image->slab_bytes;
    image->slab_bytes += Padded(layout->items[moved.shard()].bytes());
    image->moved_out.push_back({moved.shard(), moved.to_rank()});
  }
  for (size_t i = 0; i < layout->shard_count; ++i) {
    if (image->slab_offset[i] == SaveImage::kNotStaged && layout->items[i].bytes() > 0) {
      image->replica.push_back(static_cast<uint32_t>(i));
    }
  }
  image->layout = std::move(layout);
  return SaveImagePtr(std::move(image));
}

const AliasList& AliasesIn(const SaveImage& image, size_t file) {
  static const AliasList* const kNone = new AliasList();
  return file == 0 ? image.layout->aliases : *kNone;
}

std::optional<uint32_t> FirstUnstaged(const SaveImage& staged, const SaveImage& wanted) {
  for (const ImageFile& file : wanted.file) {
    for (uint32_t number : file.item) {
      if (!wanted.IsMovedIn(number) && staged.slab_offset[number] == SaveImage::kNotStaged) return number;
    }
  }
  for (const MovedOut& moved : wanted.moved_out) {
    if (staged.slab_offset[moved.shard] == SaveImage::kNotStaged) return moved.shard;
  }
  return std::nullopt;
}

}  // namespace cairn
