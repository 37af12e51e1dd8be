#include "common/format/manifest.h"

#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cairn/v1/manifest.pb.h"
#include "common/base/crc32c.h"
#include "common/format/safetensors_header.h"
#include "common/format/wire.h"
#include "common/resources/memory.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/tensor/flat_range.h"

namespace cairn {
namespace {

// The container is the same in every version; all numbers are little-endian.
//   0  8  magic
//   8  4  version
//  12  8  bytes of the zstd frame
//  20  4  CRC32C of everything but itself
//  24     zstd frame
constexpr std::string_view kMagic = "CAIRNVRD";
constexpr uint32_t kVersion = 1;
constexpr size_t kPrefixBytes = 24;
constexpr int kCompressionLevel = 3;

constexpr uint32_t kMaxDimensions = 64;

absl::Status Corrupt(absl::string_view what) {
  return MakeError(Reason::kManifestCorrupt, absl::StrCat("corrupt verdict: ", what));
}

void AppendLittleEndian(uint64_t value, int bytes, std::string& out) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

uint64_t LittleEndian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

// Returns the difference to the entry before. It wraps around, so every pair of numbers has one.
int64_t Difference(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}
int64_t Sum(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b)); }

void WriteManifest(const Manifest& manifest, v1::ManifestRecord& record) {
  record.set_job(manifest.job);
  record.set_step(manifest.step);
  record.set_attempt(manifest.attempt);
  record.set_request_id(manifest.request_id);
  record.set_world_size(manifest.world_size);
  record.set_commit_time_unix_nanos(absl::ToUnixNanos(manifest.commit_time));
  record.set_writer(manifest.writer);
  record.set_plan_digest(manifest.plan_digest);
  for (const std::string& digest : manifest.layout_digests) record.add_layout_digests(digest);
  record.mutable_rank_layouts()->Assign(manifest.rank_layout.begin(), manifest.rank_layout.end());
  for (const std::string& node : manifest.nodes) record.add_nodes(node);
  record.mutable_rank_nodes()->Assign(manifest.rank_node.begin(), manifest.rank_node.end());
  for (const ManifestTensor& tensor : manifest.tensors) {
    record.add_tensor_names(tensor.name);
    record.add_tensor_dtypes(static_cast<v1::DType>(tensor.dtype));
    record.add_tensor_ndims(static_cast<uint32_t>(tensor.global_shape.size()));
    for (int64_t dim : tensor.global_shape) record.add_tensor_dims(dim);
    record.add_tensor_shard_counts(tensor.shard_count);
  }
  int rank = 0;
  for (const ManifestFile& file : manifest.files) {
    record.add_file_names(file.name);
    record.add_file_rank_deltas(file.rank - rank);
    rank = file.rank;
    record.add_file_header_sizes(file.header_bytes);
    record.add_file_header_checksums(file.header_crc32c);
  }
  const auto shards = static_cast<int>(manifest.shards.size());
  record.mutable_shard_file_deltas()->Reserve(shards);
  record.mutable_shard_item_deltas()->Reserve(shards);
  record.mutable_shard_checksums()->Reserve(shards);
  int32_t file = 0, item = 0;
  int64_t flat_shard = 0, flat_end = 0, flat_length = 0;
  for (const ManifestTensor& tensor : manifest.tensors) {
    const size_t ndim = tensor.global_shape.size();
    Shape offset(ndim, 0);
    Shape shape = tensor.global_shape;
    for (uint32_t i = tensor.first_shard; i < tensor.first_shard + tensor.shard_count; ++i) {
      const ManifestShard& shard = manifest.shards[i];
      record.add_shard_file_deltas(static_cast<int32_t>(shard.file) - file);
      record.add_shard_item_deltas(static_cast<int32_t>(shard.item) - item);
      file = static_cast<int32_t>(shard.file);
      item = static_cast<int32_t>(shard.item);
      record.add_shard_checksums(shard.crc32c);
      const int64_t* dims = manifest.dims.data() + shard.dims;
      for (size_t d = 0; d < ndim; ++d) {
        record.add_shard_offset_deltas(Difference(dims[d], offset[d]));
        offset[d] = dims[d];
      }
      for (size_t d = 0; d < ndim; ++d) {
        record.add_shard_shape_deltas(Difference(dims[ndim + d], shape[d]));
        shape[d] = dims[ndim + d];
      }
      if (shard.flat) {
        const int64_t begin = dims[2 * ndim], end = dims[2 * ndim + 1];
        record.add_flat_shard_deltas(i - flat_shard);
        record.add_flat_begin_deltas(Difference(begin, flat_end));
        record.add_flat_length_deltas(Difference(end - begin, flat_length));
        flat_shard = i;
        flat_end = end;
        flat_length = end - begin;
      }
    }
  }
  file = item = 0;
  const std::string* name = nullptr;
  for (const ManifestObject& object : manifest.objects) {
    if (name == nullptr || *name != object.name) {
      record.add_object_names(object.name);
      record.add_object_entry_counts(0);
      name = &object.name;
    }
    auto& entries = *record.mutable_object_entry_counts();
    ++entries[entries.size() - 1];
    record.add_object_ranks(object.rank ? static_cast<uint32_t>(*object.rank) + 1 : 0);
    record.add_object_file_deltas(static_cast<int32_t>(object.file) - file);
    record.add_object_item_deltas(static_cast<int32_t>(object.item) - item);
    file = static_cast<int32_t>(object.file);
    item = static_cast<int32_t>(object.item);
    record.add_object_slot_sizes(object.slot_bytes);
    record.add_object_sizes(object.bytes);
    record.add_object_checksums(object.crc32c);
  }
  for (const auto& [alias, target] : manifest.aliases) {
    record.add_alias_names(alias);
    record.add_alias_targets(target);
  }
}

absl::Status ReadWorld(const v1::ManifestRecord& record, Manifest& manifest) {
  manifest.job = record.job();
  manifest.step = record.step();
  manifest.attempt = record.attempt();
  manifest.request_id = record.request_id();
  manifest.world_size = record.world_size();
  manifest.commit_time = absl::FromUnixNanos(record.commit_time_unix_nanos());
  manifest.writer = record.writer();
  manifest.plan_digest = record.plan_digest();
  manifest.layout_digests.assign(record.layout_digests().begin(), record.layout_digests().end());
  manifest.rank_layout.assign(record.rank_layouts().begin(), record.rank_layouts().end());
  manifest.nodes.assign(record.nodes().begin(), record.nodes().end());
  manifest.rank_node.assign(record.rank_nodes().begin(), record.rank_nodes().end());
  if (manifest.step < 0) return Corrupt("a negative step");
  for (uint32_t layout : manifest.rank_layout) {
    if (layout >= manifest.layout_digests.size()) return Corrupt("a rank's layout");
  }
  for (uint32_t node : manifest.rank_node) {
    if (node >= manifest.nodes.size()) return Corrupt("a rank's node");
  }
  return absl::OkStatus();
}

absl::Status ReadTensors(const v1::ManifestRecord& record, Manifest& manifest) {
  const int count = record.tensor_names_size();
  if (record.tensor_dtypes_size() != count || record.tensor_ndims_size() != count ||
      record.tensor_shard_counts_size() != count) {
    return Corrupt("the columns of the tensors differ in length");
  }
  int dim = 0;
  uint64_t shards = 0;
  manifest.tensors.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    ManifestTensor tensor;
    tensor.name = record.tensor_names(i);
    if (i > 0 && tensor.name <= manifest.tensors.back().name)
      return Corrupt("tensors are not in the order of their names");
    CAIRN_RETURN_IF_ERROR(CheckName(tensor.name).ok() ? absl::OkStatus() : Corrupt("a tensor's name"));
    const auto dtype = DTypeFromNumber(record.tensor_dtypes(i));
    if (!dtype) {
      return MakeError(Reason::kFormatTooNew, absl::StrCat("tensor ", tensor.name, " has the unknown dtype number ",
                                                           static_cast<int>(record.tensor_dtypes(i))));
    }
    tensor.dtype = *dtype;
    const uint32_t ndim = record.tensor_ndims(i);
    if (ndim > kMaxDimensions || static_cast<int64_t>(ndim) > record.tensor_dims_size() - dim) {
      return Corrupt(absl::StrCat("the dimensions of tensor ", tensor.name));
    }
    for (uint32_t d = 0; d < ndim; ++d) tensor.global_shape.push_back(record.tensor_dims(dim++));
    const auto elements = ElementCount(tensor.global_shape);
    if (!elements || *elements > INT64_MAX / BytesOf(*dtype)) {
      return Corrupt(absl::StrCat("the shape of tensor ", tensor.name));
    }
    tensor.first_shard = static_cast<uint32_t>(shards);
    tensor.shard_count = record.tensor_shard_counts(i);
    shards += tensor.shard_count;
    if (shards > static_cast<uint64_t>(record.shard_checksums_size())) return Corrupt("the number of shards");
    manifest.tensors.push_back(std::move(tensor));
  }
  if (dim != record.tensor_dims_size()) return Corrupt("the number of dimensions");
  if (shards != static_cast<uint64_t>(record.shard_checksums_size())) return Corrupt("the number of shards");
  return absl::OkStatus();
}

absl::Status ReadFiles(const v1::ManifestRecord& record, Manifest& manifest) {
  const int count = record.file_names_size();
  if (record.file_rank_deltas_size() != count || record.file_header_sizes_size() != count ||
      record.file_header_checksums_size() != count) {
    return Corrupt("the columns of the files differ in length");
  }
  int64_t rank = 0;
  for (int i = 0; i < count; ++i) {
    rank += record.file_rank_deltas(i);
    const std::string& name = record.file_names(i);
    const uint64_t header = record.file_header_sizes(i);
    // A name becomes a path, so it must have the form that a planner gives it.
    const bool plain = !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
    });
    if (!plain) return Corrupt("a file's name");
    if (rank < 0 || rank > INT32_MAX) return Corrupt(absl::StrCat("the rank of file ", name));
    if (header < kDataAlignment || header > kMaxHeaderBytes + 2 * kDataAlignment || header % kDataAlignment != 0) {
      return Corrupt(absl::StrCat("the header length of file ", name));
    }
    manifest.files.push_back({name, static_cast<int>(rank), header, 0, record.file_header_checksums(i)});
  }
  return absl::OkStatus();
}

absl::Status ReadShards(const v1::ManifestRecord& record, Manifest& manifest) {
  const int count = record.shard_checksums_size();
  const int flats = record.flat_shard_deltas_size();
  if (record.shard_file_deltas_size() != count || record.shard_item_deltas_size() != count ||
      record.flat_begin_deltas_size() != flats || record.flat_length_deltas_size() != flats) {
    return Corrupt("the columns of the shards differ in length");
  }
  uint64_t dims = 0;
  for (const ManifestTensor& tensor : manifest.tensors)
    dims += uint64_t{tensor.shard_count} * tensor.global_shape.size();
  if (static_cast<uint64_t>(record.shard_offset_deltas_size()) != dims ||
      static_cast<uint64_t>(record.shard_shape_deltas_size()) != dims ||
      2 * dims + 2 * static_cast<uint64_t>(flats) > UINT32_MAX) {
    return Corrupt("the columns of the boxes differ in length");
  }
  manifest.shards.reserve(static_cast<size_t>(count));
  manifest.dims.reserve(2 * dims + 2 * static_cast<size_t>(flats));
  int64_t file = 0, item = 0;
  int flat = 0;
  int64_t flat_shard = flats > 0 ? record.flat_shard_deltas(0) : -1;
  int64_t flat_end = 0, flat_length = 0;
  int dim = 0, i = 0;
  Box box;
  for (uint32_t t = 0; t < manifest.tensors.size(); ++t) {
    const ManifestTensor& tensor = manifest.tensors[t];
    const size_t ndim = tensor.global_shape.size();
    box.offset.assign(ndim, 0);
    box.shape = tensor.global_shape;
    for (uint32_t k = 0; k < tensor.shard_count; ++k, ++i) {
      file += record.shard_file_deltas(i);
      item += record.shard_item_deltas(i);
      if (file < 0 || file >= static_cast<int64_t>(manifest.files.size()) || item < 0 || item > INT32_MAX) {
        return Corrupt(absl::StrCat("the place of a shard of ", tensor.name));
      }
      for (size_t d = 0; d < ndim; ++d, ++dim) {
        box.offset[d] = Sum(box.offset[d], record.shard_offset_deltas(dim));
        box.shape[d] = Sum(box.shape[d], record.shard_shape_deltas(dim));
      }
      if (!Contains(tensor.global_shape, box) || box.empty()) {
        return Corrupt(absl::StrCat("a shard of ", tensor.name, " is empty or reaches outside"));
      }
      ManifestShard shard;
      shard.tensor = t;
      shard.file = static_cast<uint32_t>(file);
      shard.item = static_cast<uint32_t>(item);
      shard.crc32c = record.shard_checksums(i);
      shard.dims = static_cast<uint32_t>(manifest.dims.size());
      manifest.dims.insert(manifest.dims.end(), box.offset.begin(), box.offset.end());
      manifest.dims.insert(manifest.dims.end(), box.shape.begin(), box.shape.end());
      if (i == flat_shard) {
        const int64_t begin = Sum(flat_end, record.flat_begin_deltas(flat));
        const int64_t length = Sum(flat_length, record.flat_length_deltas(flat));
        const int64_t size = box.size();
        if (begin < 0 || length < 1 || length > size || begin > size - length) {
          return Corrupt(absl::StrCat("a flat piece of ", tensor.name, " is empty or reaches outside"));
        }
        shard.flat = true;
        flat_end = begin + length;
        flat_length = length;
        manifest.dims.push_back(begin);
        manifest.dims.push_back(flat_end);
        if (++flat < flats) {
          const int64_t delta = record.flat_shard_deltas(flat);
          if (delta <= 0 || delta > count) return Corrupt("flat pieces are not ascending");
          flat_shard += delta;
        }
      }
      manifest.shards.push_back(shard);
    }
  }
  if (flat != flats) return Corrupt("a flat piece outside the shards");
  return absl::OkStatus();
}

absl::Status ReadObjects(const v1::ManifestRecord& record, Manifest& manifest) {
  const int count = record.object_checksums_size();
  if (record.object_ranks_size() != count || record.object_file_deltas_size() != count ||
      record.object_item_deltas_size() != count || record.object_slot_sizes_size() != count ||
      record.object_sizes_size() != count || record.object_entry_counts_size() != record.object_names_size()) {
    return Corrupt("the columns of the objects differ in length");
  }
  int64_t file = 0, item = 0;
  int i = 0;
  for (int n = 0; n < record.object_names_size(); ++n) {
    const std::string& name = record.object_names(n);
    if (!CheckName(name).ok()) return Corrupt("an object's name");
    if (n > 0 && name <= record.object_names(n - 1)) return Corrupt("objects are not in the order of their names");
    if (record.object_entry_counts(n) > static_cast<uint32_t>(count - i)) return Corrupt("the number of objects");
    for (uint32_t k = 0; k < record.object_entry_counts(n); ++k, ++i) {
      file += record.object_file_deltas(i);
      item += record.object_item_deltas(i);
      ManifestObject object;
      object.name = name;
      const uint32_t rank = record.object_ranks(i);
      if (rank > INT32_MAX) return Corrupt(absl::StrCat("the rank of object ", name));
      if (rank > 0) object.rank = static_cast<int>(rank) - 1;
      object.slot_bytes = record.object_slot_sizes(i);
      object.bytes = record.object_sizes(i);
      if (file < 0 || file >= static_cast<int64_t>(manifest.files.size()) || item < 0 || item > INT32_MAX ||
          object.slot_bytes > uint64_t{1} << 40 || object.bytes > object.slot_bytes) {
        return Corrupt(absl::StrCat("the place or length of object ", name));
      }
      object.file = static_cast<uint32_t>(file);
      object.item = static_cast<uint32_t>(item);
      object.crc32c = record.object_checksums(i);
      manifest.objects.push_back(std::move(object));
    }
  }
  if (i != count) return Corrupt("the number of objects");
  return absl::OkStatus();
}

absl::StatusOr<Manifest> ReadManifest(const v1::ManifestRecord& record) {
  Manifest manifest;
  CAIRN_RETURN_IF_ERROR(ReadWorld(record, manifest));
  CAIRN_RETURN_IF_ERROR(ReadTensors(record, manifest));
  CAIRN_RETURN_IF_ERROR(ReadFiles(record, manifest));
  CAIRN_RETURN_IF_ERROR(ReadShards(record, manifest));
  CAIRN_RETURN_IF_ERROR(ReadObjects(record, manifest));
  if (record.alias_names_size() != record.alias_targets_size()) return Corrupt("the columns of the aliases");
  for (int i = 0; i < record.alias_names_size(); ++i) {
    manifest.aliases.emplace_back(record.alias_names(i), record.alias_targets(i));
  }
  CAIRN_RETURN_IF_ERROR(manifest.PlaceItems());
  return manifest;
}

// Decodes bytes that CheckVerdict has accepted. Throws std::bad_alloc.
absl::StatusOr<Verdict> DecodeChecked(std::string_view bytes, uint64_t max_record_bytes) {
  const std::string_view frame = bytes.substr(kPrefixBytes);
  const unsigned long long size = ZSTD_getFrameContentSize(frame.data(), frame.size());
  if (size == ZSTD_CONTENTSIZE_UNKNOWN || size == ZSTD_CONTENTSIZE_ERROR)
    return Corrupt("no zstd frame of known length");
  if (size > max_record_bytes || size > INT32_MAX) return Corrupt(absl::StrCat("a record of ", size, " bytes"));
  std::string plain(size, '\0');
  const size_t unpacked = ZSTD_decompress(plain.data(), plain.size(), frame.data(), frame.size());
  if (ZSTD_getErrorCode(unpacked) == ZSTD_error_memory_allocation) throw std::bad_alloc();
  if (unpacked != size) return Corrupt("its zstd frame");
  v1::VerdictRecord record;
  if (!record.ParseFromString(plain)) return Corrupt("its record is no VerdictRecord");
  plain = std::string();
  switch (record.verdict_case()) {
    case v1::VerdictRecord::kManifest: {
      CAIRN_ASSIGN_OR_RETURN(Manifest manifest, ReadManifest(record.manifest()));
      return Verdict(std::move(manifest));
    }
    case v1::VerdictRecord::kTombstone: {
      const v1::TombstoneRecord& in = record.tombstone();
      return Verdict(Tombstone{in.job(), in.step(), in.attempt(), in.request_id(), in.reason(), in.message(),
                               absl::FromUnixNanos(in.time_unix_nanos())});
    }
    case v1::VerdictRecord::VERDICT_NOT_SET:
      break;
  }
  return MakeError(Reason::kFormatTooNew, "the verdict is of a kind that this version does not know");
}

}  // namespace

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
  // Items are sorted by (file, number) by counting them first, so hostile numbers cost no more than the items
  // themselves.
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
      return Corrupt(absl::StrCat("two items at one place of file ", files[shard.file].name));
    }
  }
  for (const ManifestObject& object : objects) {
    if (!place(object.file, object.item, object.slot_bytes)) {
      return Corrupt(absl::StrCat("two items at one place of file ", files[object.file].name));
    }
  }
  for (size_t f = 0; f < files.size(); ++f) {
    uint64_t offset = files[f].header_bytes;
    for (size_t i = first[f]; i < first[f + 1]; ++i) {
      const uint64_t bytes = lengths[i];
      lengths[i] = offset;
      offset += bytes;
      if (offset > INT64_MAX) return Corrupt(absl::StrCat("file ", files[f].name, " has 2^63 bytes or more"));
    }
    files[f].data_bytes = offset - files[f].header_bytes;
  }
  for (ManifestShard& shard : shards) shard.file_offset = lengths[first[shard.file] + shard.item];
  for (ManifestObject& object : objects) object.file_offset = lengths[first[object.file] + object.item];
  return absl::OkStatus();
}

std::string EncodeVerdict(const Verdict& verdict) {
  v1::VerdictRecord record;
  if (const auto* manifest = std::get_if<Manifest>(&verdict)) {
    WriteManifest(*manifest, *record.mutable_manifest());
  } else {
    const auto& tombstone = std::get<Tombstone>(verdict);
    v1::TombstoneRecord& out = *record.mutable_tombstone();
    out.set_job(tombstone.job);
    out.set_step(tombstone.step);
    out.set_attempt(tombstone.attempt);
    out.set_request_id(tombstone.request_id);
    out.set_reason(tombstone.reason);
    out.set_message(tombstone.message);
    out.set_time_unix_nanos(absl::ToUnixNanos(tombstone.time));
  }
  const std::string plain = record.SerializeAsString();
  record.Clear();
  std::string bytes(kPrefixBytes + ZSTD_compressBound(plain.size()), '\0');
  const size_t frame = ZSTD_compress(bytes.data() + kPrefixBytes, bytes.size() - kPrefixBytes, plain.data(),
                                     plain.size(), kCompressionLevel);
  bytes.resize(kPrefixBytes + frame);
  std::string prefix(kMagic);
  AppendLittleEndian(kVersion, 4, prefix);
  AppendLittleEndian(frame, 8, prefix);
  const uint32_t crc = ExtendCrc32c(Crc32c(prefix.data(), prefix.size()), bytes.data() + kPrefixBytes, frame);
  AppendLittleEndian(crc, 4, prefix);
  std::memcpy(bytes.data(), prefix.data(), kPrefixBytes);
  return bytes;
}

absl::Status CheckVerdict(std::string_view bytes) {
  if (bytes.size() < kPrefixBytes) return Corrupt(absl::StrCat("it has ", bytes.size(), " bytes, fewer than its head"));
  if (bytes.substr(0, 8) != kMagic) return Corrupt("it does not begin with CAIRNVRD");
  const uint64_t version = LittleEndian(bytes.substr(8, 4));
  const uint64_t length = LittleEndian(bytes.substr(12, 8));
  const std::string_view frame = bytes.substr(kPrefixBytes);
  if (length != frame.size()) {
    return Corrupt(absl::StrCat("its record should have ", length, " bytes and has ", frame.size()));
  }
  // The head is the same in every version, so a wrong checksum means damage even where the version looks newer.
  const uint32_t crc = ExtendCrc32c(Crc32c(bytes.data(), 20), frame.data(), frame.size());
  if (crc != LittleEndian(bytes.substr(20, 4))) return Corrupt("its checksum is wrong");
  if (version > kVersion) {
    return MakeError(Reason::kFormatTooNew,
                     absl::StrCat("the verdict has version ", version, ", this reads ", kVersion));
  }
  if (version == 0) return Corrupt("version 0");
  return absl::OkStatus();
}

absl::StatusOr<Verdict> DecodeVerdict(std::string_view bytes, uint64_t max_record_bytes) {
  CAIRN_RETURN_IF_ERROR(CheckVerdict(bytes));
  return WithMemory("to unpack a verdict", [&] { return DecodeChecked(bytes, max_record_bytes); });
}

bool ShowsManifestOf(std::string_view bytes, std::string_view job, int64_t step, uint32_t attempt) {
  if (bytes.size() < kPrefixBytes || bytes.substr(0, kMagic.size()) != kMagic) return false;
  const std::string_view frame = bytes.substr(kPrefixBytes);
  // This is more than the first fields take. zstd gives a block's bytes only after it has read the whole block.
  std::string plain(ZSTD_DStreamOutSize(), '\0');
  const std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> context(ZSTD_createDCtx(), ZSTD_freeDCtx);
  if (context == nullptr) return false;
  ZSTD_inBuffer in = {frame.data(), frame.size(), 0};
  ZSTD_outBuffer out = {plain.data(), plain.size(), 0};
  while (in.pos < in.size && out.pos < out.size) {
    const size_t before = in.pos + out.pos;
    const size_t left = ZSTD_decompressStream(context.get(), &out, &in);
    if (ZSTD_isError(left) || left == 0 || in.pos + out.pos == before) break;
  }
  // Both records begin with the same four fields; the fifth is a number in a manifest and a text in a tombstone.
  WireReader reader({plain.data(), out.pos});
  constexpr uint64_t kText = 2;  // wire type
  if (reader.Varint() != (v1::VerdictRecord::kManifestFieldNumber << 3 | kText) || reader.Varint() == 0) return false;
  std::string_view seen_job;
  uint64_t seen_step = 0, seen_attempt = 0;
  while (const uint32_t field = reader.NextField()) {
    if (reader.is_bytes()) {
      if (field == v1::ManifestRecord::kJobFieldNumber) seen_job = reader.bytes();
      if (field > v1::ManifestRecord::kRequestIdFieldNumber) return false;
      continue;
    }
    if (field == v1::ManifestRecord::kStepFieldNumber) seen_step = reader.number();
    if (field == v1::ManifestRecord::kAttemptFieldNumber) seen_attempt = reader.number();
    if (field < v1::ManifestRecord::kWorldSizeFieldNumber) continue;
    return field == v1::ManifestRecord::kWorldSizeFieldNumber && seen_job == job &&
           seen_step == static_cast<uint64_t>(step) && seen_attempt == attempt;
  }
  return false;
}

}  // namespace cairn
