#include "common/format/manifest.h"

#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/format/corrupt_outcome.h"
#include "common/tensor/fingerprint.h"
#include "common/tensor/flat_range.h"

namespace cairn {

std::span<const int64_t> Manifest::offset_of(const ManifestShard& shard) const {
  return {dims.data() + shard.dims, tensors[shard.tensor].global_shape.size()};
}

std::span<const int64_t> Manifest::shape_of(const ManifestShard& shard) const {
  const size_t ndim = tensors[shard.tensor].global_shape.size();
  return {dims.data() + shard.dims + ndim, ndim};
}

Box Manifest::box_of(const ManifestShard& shard) const {
  const auto offset = offset_of(shard);
  const auto shape = shape_of(shard);
  return {Shape(offset.begin(), offset.end()), Shape(shape.begin(), shape.end())};
}

std::optional<FlatRange> Manifest::flat_range_of(const ManifestShard& shard) const {
  if (!shard.flat) return std::nullopt;
  const int64_t* range = dims.data() + shard.dims + 2 * tensors[shard.tensor].global_shape.size();
  return FlatRange{range[0], range[1]};
}

StoredItem Manifest::item_of(const ManifestShard& shard) const {
  const ManifestTensor& tensor = tensors[shard.tensor];
  return {tensor.name, tensor.dtype, tensor.global_shape, box_of(shard), flat_range_of(shard), false, std::nullopt};
}

StoredItem Manifest::item_of(const ManifestObject& object) {
  const auto slot = static_cast<int64_t>(object.slot_bytes);
  return {object.name, DType::kUint8, {slot}, {{0}, {slot}}, std::nullopt, true, object.rank};
}

std::optional<uint64_t> Manifest::fingerprint_of(size_t tensor) const {
  if (tensor >= summaries.size()) return std::nullopt;
  const auto elements = static_cast<uint64_t>(ElementCount(tensors[tensor].global_shape).value_or(0));
  return FingerprintFromParts(summaries[tensor].fingerprint_parts,
                              elements * static_cast<uint64_t>(BytesOf(tensors[tensor].dtype)));
}

std::string Manifest::path_of(const ManifestFile& file) const {
  if (file.imported()) return file.name;
  return absl::StrFormat("%012d/%04d/%s.safetensors", step, attempt, file.name);
}

uint64_t Manifest::total_bytes() const {
  uint64_t bytes = 0;
  for (const ManifestFile& file : files) bytes += file.bytes();
  return bytes;
}

absl::Status Manifest::PlaceItems() {
  // A counting sort by (file, number), which costs the same for a hostile manifest's numbers.
  std::vector<size_t> first(files.size() + 1, 0);
  for (const ManifestShard& shard : shards) ++first[shard.file + 1];
  for (const ManifestObject& object : objects) ++first[object.file + 1];
  std::partial_sum(first.begin(), first.end(), first.begin());
  constexpr uint64_t kUnset = UINT64_MAX;
  std::vector<uint64_t> lengths(first.back(), kUnset);
  const auto place = [&](uint32_t file, uint32_t item, uint64_t bytes) {
    if (item >= first[file + 1] - first[file] || lengths[first[file] + item] != kUnset) return false;
    lengths[first[file] + item] = bytes;
    return true;
  };
  for (ManifestShard& shard : shards) {
    const size_t ndim = tensors[shard.tensor].global_shape.size();
    const int64_t* entry = dims.data() + shard.dims;
    int64_t elements = 1;
    for (size_t d = 0; d < ndim; ++d) elements *= entry[ndim + d];
    if (shard.flat) elements = entry[2 * ndim + 1] - entry[2 * ndim];
    shard.bytes = static_cast<uint64_t>(elements) * static_cast<uint64_t>(BytesOf(tensors[shard.tensor].dtype));
    if (!place(shard.file, shard.item, shard.bytes)) {
      return CorruptOutcome(absl::StrCat("two items at one place of file ", files[shard.file].name));
    }
  }
  for (const ManifestObject& object : objects) {
    if (!place(object.file, object.item, object.slot_bytes)) {
      return CorruptOutcome(absl::StrCat("two items at one place of file ", files[object.file].name));
    }
  }
  for (size_t f = 0; f < files.size(); ++f) {
    uint64_t offset = files[f].header_bytes;
    for (size_t i = first[f]; i < first[f + 1]; ++i) {
      const uint64_t bytes = lengths[i];
      lengths[i] = offset;
      offset += bytes;
      if (offset > INT64_MAX) return CorruptOutcome(absl::StrCat("file ", files[f].name, " has 2^63 bytes or more"));
    }
    files[f].data_bytes = offset - files[f].header_bytes;
  }
  for (ManifestShard& shard : shards) shard.file_offset = lengths[first[shard.file] + shard.item];
  for (ManifestObject& object : objects) object.file_offset = lengths[first[object.file] + object.item];
  return absl::OkStatus();
}

}  // namespace cairn
