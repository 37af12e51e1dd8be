#include "agent/session/save_image.h"

#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/format/safetensors_header.h"
#include "common/rpc/reason.h"

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

}  // namespace

absl::StatusOr<SaveImagePtr> MakeSaveImage(RankLayoutPtr layout, const v1::WritePlan& plan) {
  if (plan.layout_digest() != layout->digest) {
    return MakeError(Reason::kLayoutChanged, absl::StrCat("the plan ", DigestHex(plan.plan_digest()).substr(0, 12),
                                                          " was made for another layout of this rank"));
  }
  if (!layout->fault.ok()) return layout->fault;
  if (plan.moved_in_size() > 0 || plan.moved_out_size() > 0) {
    return MakeError(Reason::kUnsupported, "the write plan moves shards between ranks, which this agent cannot do");
  }
  auto image = std::make_shared<SaveImage>();
  image->plan_digest = plan.plan_digest();
  image->slab_offset.assign(layout->items.size(), SaveImage::kNotStaged);
  absl::flat_hash_set<std::string> names;
  for (const v1::PlannedFile& planned : plan.file()) {
    ImageFile file;
    file.name = planned.name();
    if (!IsPlainName(file.name) || !names.insert(file.name).second) {
      return Contradiction(absl::StrCat("a file is named \"", file.name.substr(0, 80), "\""));
    }
    file.slab_offset = image->slab_bytes;
    HeaderSizer sizer;
    for (uint32_t number : planned.item()) {
      if (number >= layout->items.size()) return Contradiction("it names an item that the layout lacks");
      if (image->slab_offset[number] != SaveImage::kNotStaged) return Contradiction("it writes an item twice");
      const StoredItem& item = layout->items[number];
      sizer.Add(item);
      image->slab_offset[number] = file.slab_offset + planned.header_bytes() + file.data_bytes;
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
  for (size_t i = 0; i < layout->shard_count; ++i) {
    if (image->slab_offset[i] == SaveImage::kNotStaged && layout->items[i].bytes() > 0) {
      image->replica.push_back(static_cast<uint32_t>(i));
    }
  }
  image->layout = std::move(layout);
  return SaveImagePtr(std::move(image));
}

std::optional<uint32_t> FirstUnstaged(const SaveImage& staged, const SaveImage& wanted) {
  for (const ImageFile& file : wanted.file) {
    for (uint32_t number : file.item) {
      if (staged.slab_offset[number] == SaveImage::kNotStaged) return number;
    }
  }
  return std::nullopt;
}

}  // namespace cairn
