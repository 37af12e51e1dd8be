#include "foreign/read/source/foreign_manifest.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// If tensors may share bytes, a small file could describe any number of large tensors. Together they may take at most
// kMostTimesShared times the bytes of their file, or kMostSharedAnyway bytes if that is more.
constexpr uint64_t kMostTimesShared = 16;
constexpr uint64_t kMostSharedAnyway = uint64_t{1} << 30;

}  // namespace

uint32_t ForeignManifest::AddFile(const ForeignFile& file) {
  ManifestFile& added = manifest_.files.emplace_back();
  added.name = file.path();
  added.data_bytes = file.bytes();  // all bytes are data: no part of the file is a header with a checksum
  added.modified_ns = file.modified_ns();
  file.AddTo(digester_);
  return static_cast<uint32_t>(manifest_.files.size() - 1);
}

uint32_t ForeignManifest::AddTensor(std::string name, DType dtype, Shape global_shape) {
  ManifestTensor& tensor = manifest_.tensors.emplace_back();
  tensor.name = std::move(name);
  tensor.dtype = dtype;
  tensor.global_shape = std::move(global_shape);
  return static_cast<uint32_t>(manifest_.tensors.size() - 1);
}

void ForeignManifest::AddPiece(uint32_t tensor, std::span<const int64_t> offset, std::span<const int64_t> shape,
                               uint32_t file, uint64_t file_offset) {
  int64_t elements = 1;
  for (const int64_t size : shape) elements *= size;
  if (elements == 0) return;
  ManifestShard& shard = manifest_.shards.emplace_back();
  shard.tensor = tensor;
  shard.file = file;
  shard.file_offset = file_offset;
  shard.bytes = static_cast<uint64_t>(elements) * static_cast<uint64_t>(BytesOf(manifest_.tensors[tensor].dtype));
  shard.dims = static_cast<uint32_t>(manifest_.dims.size());
  manifest_.dims.insert(manifest_.dims.end(), offset.begin(), offset.end());
  manifest_.dims.insert(manifest_.dims.end(), shape.begin(), shape.end());
}

void ForeignManifest::AddValue(std::string name, uint32_t file, uint64_t file_offset, uint64_t bytes) {
  ManifestObject& object = manifest_.objects.emplace_back();
  object.name = std::move(name);
  object.file = file;
  object.file_offset = file_offset;
  object.slot_bytes = bytes;
  object.bytes = bytes;
}

void ForeignManifest::AddValueOfRank(std::string name, int rank, uint32_t world_size, uint32_t file,
                                     uint64_t file_offset, uint64_t bytes) {
  AddValue(std::move(name), file, file_offset, bytes);
  manifest_.objects.back().rank = rank;
  manifest_.world_size = world_size;
}

void ForeignManifest::AddAlias(std::string name, std::string target) {
  manifest_.aliases.emplace_back(std::move(name), std::move(target));
}

std::string ForeignManifest::NameOf(uint32_t item) const {
  return item < manifest_.shards.size() ? manifest_.tensors[manifest_.shards[item].tensor].name
                                        : manifest_.objects[item - manifest_.shards.size()].name;
}

absl::Status ForeignManifest::TooMuchShared(const ManifestFile& file, uint32_t item) const {
  return MakeError(
      Reason::kUnsupported,
      absl::StrCat(file.name, " has ", file.data_bytes,
                   " bytes, but its tensors, which are views of the same bytes, take ", "more than ", kMostTimesShared,
                   " times as many, and more than ", kMostSharedAnyway),
      {{"file", file.name},
       {"tensor", NameOf(item)},
       {"next", "Save x.clone() of each tensor, and read that file; or save only one of the tensors that are views."}});
}

absl::StatusOr<Manifest> ForeignManifest::Finish() && {
  if (manifest_.dims.size() > UINT32_MAX) {
    return MakeError(Reason::kUnsupported, "the source has more than 2^32 offsets and sizes of shards");
  }
  std::sort(manifest_.aliases.begin(), manifest_.aliases.end());
  std::sort(manifest_.shards.begin(), manifest_.shards.end(), [&](const ManifestShard& a, const ManifestShard& b) {
    if (a.tensor != b.tensor) return a.tensor < b.tensor;
    const size_t entries = 2 * manifest_.tensors[a.tensor].global_shape.size();
    const int64_t *x = manifest_.dims.data() + a.dims, *y = manifest_.dims.data() + b.dims;
    return std::lexicographical_compare(x, x + entries, y, y + entries);
  });
  for (uint32_t s = 0; s < manifest_.shards.size(); ++s) {
    ManifestTensor& tensor = manifest_.tensors[manifest_.shards[s].tensor];
    if (tensor.shard_count++ == 0) tensor.first_shard = s;
  }
  struct Range {
    uint32_t file;
    uint64_t begin;
    uint64_t bytes;
    uint32_t item;
  };
  std::vector<Range> ranges;
  ranges.reserve(manifest_.shards.size() + manifest_.objects.size());
  for (const ManifestShard& shard : manifest_.shards) {
    ranges.push_back({shard.file, shard.file_offset, shard.bytes, static_cast<uint32_t>(ranges.size())});
  }
  for (const ManifestObject& object : manifest_.objects) {
    ranges.push_back({object.file, object.file_offset, object.bytes, static_cast<uint32_t>(ranges.size())});
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
    return std::tie(a.file, a.begin, a.item) < std::tie(b.file, b.begin, b.item);
  });
  uint32_t number = 0;
  size_t furthest = 0;    // the range so far in this file that ends last
  uint64_t declared = 0;  // the bytes of all ranges
  for (size_t i = 0; i < ranges.size(); ++i) {
    const Range& range = ranges[i];
    const ManifestFile& file = manifest_.files[range.file];
    const bool follows = i > 0 && ranges[i - 1].file == range.file;
    if (range.bytes > file.data_bytes || range.begin > file.data_bytes - range.bytes) {
      return MakeError(Reason::kFileTruncated,
                       absl::StrCat(file.name, " has ", file.data_bytes, " bytes, but '", NameOf(range.item),
                                    "' takes ", range.bytes, " bytes at ", range.begin),
                       {{"file", file.name}, {"tensor", NameOf(range.item)}});
    }
    const Range& last = ranges[furthest];
    const uint64_t end = last.begin + last.bytes;
    const bool are_pieces = std::max(last.item, range.item) < manifest_.shards.size();
    if (follows && end > range.begin && !(shares_bytes_ && are_pieces)) {
      return MakeError(Reason::kBadForeignFile,
                       absl::StrCat(file.name, ": '", NameOf(last.item), "' and '", NameOf(range.item),
                                    "' share bytes at ", range.begin),
                       {{"file", file.name}, {"tensor", NameOf(range.item)}});
    }
    if (!follows || range.begin + range.bytes > end) furthest = i;
    declared = follows ? declared + range.bytes : range.bytes;
    if (declared > kMostSharedAnyway && declared / kMostTimesShared > file.data_bytes) {
      return TooMuchShared(file, range.item);
    }
    number = follows ? number + 1 : 0;
    if (range.item < manifest_.shards.size()) {
      manifest_.shards[range.item].item = number;
    } else {
      manifest_.objects[range.item - manifest_.shards.size()].item = number;
    }
  }
  manifest_.plan_digest = digester_.Finish();
  return std::move(manifest_);
}

}  // namespace cairn
