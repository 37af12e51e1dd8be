#include "common/format/manifest_record.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/format/corrupt_outcome.h"
#include "common/format/safetensors_header.h"
#include "common/format/summary_columns.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr uint32_t kMaxDimensions = 64;

// Returns a - b with wrap-around, which is defined for every pair of numbers.
int64_t Difference(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}
int64_t Sum(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b)); }

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
  manifest.lineage.line = record.line();
  if (record.has_continues_step()) manifest.lineage.continues_step = record.continues_step();
  manifest.lineage.parent_line = record.parent_line();
  manifest.lineage.sequence = record.sequence();
  if (!record.replica_mismatch().empty()) {
    manifest.alarms.push_back({std::string(alarm::kReplicasDiffer), record.replica_mismatch()});
  }
  for (const v1::AlarmRecord& alarm : record.alarms()) manifest.alarms.push_back({alarm.kind(), alarm.message()});
  if (record.metric_names_size() != record.metric_values_size()) return CorruptOutcome("the number of metrics");
  for (int i = 0; i < record.metric_names_size(); ++i) {
    manifest.metrics.push_back({record.metric_names(i), record.metric_values(i)});
  }
  if (manifest.step < 0 || record.continues_step() < 0) return CorruptOutcome("a negative step");
  for (uint32_t layout : manifest.rank_layout) {
    if (layout >= manifest.layout_digests.size()) return CorruptOutcome("a rank's layout");
  }
  for (uint32_t node : manifest.rank_node) {
    if (node >= manifest.nodes.size()) return CorruptOutcome("a rank's node");
  }
  return absl::OkStatus();
}

absl::Status ReadTensors(const v1::ManifestRecord& record, Manifest& manifest) {
  const int count = record.tensor_names_size();
  if (record.tensor_dtypes_size() != count || record.tensor_ndims_size() != count ||
      record.tensor_shard_counts_size() != count) {
    return CorruptOutcome("the columns of the tensors differ in length");
  }
  int dim = 0;
  uint64_t shards = 0;
  manifest.tensors.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    ManifestTensor tensor;
    tensor.name = record.tensor_names(i);
    if (i > 0 && tensor.name <= manifest.tensors.back().name)
      return CorruptOutcome("tensors are not in the order of their names");
    CAIRN_RETURN_IF_ERROR(CheckName(tensor.name).ok() ? absl::OkStatus() : CorruptOutcome("a tensor's name"));
    const auto dtype = DTypeFromNumber(record.tensor_dtypes(i));
    if (!dtype) {
      return MakeError(Reason::kFormatTooNew, absl::StrCat("tensor ", tensor.name, " has the unknown dtype number ",
                                                           static_cast<int>(record.tensor_dtypes(i))));
    }
    tensor.dtype = *dtype;
    const uint32_t ndim = record.tensor_ndims(i);
    if (ndim > kMaxDimensions || static_cast<int64_t>(ndim) > record.tensor_dims_size() - dim) {
      return CorruptOutcome(absl::StrCat("the dimensions of tensor ", tensor.name));
    }
    for (uint32_t d = 0; d < ndim; ++d) tensor.global_shape.push_back(record.tensor_dims(dim++));
    const auto elements = ElementCount(tensor.global_shape);
    if (!elements || *elements > INT64_MAX / BytesOf(*dtype)) {
      return CorruptOutcome(absl::StrCat("the shape of tensor ", tensor.name));
    }
    tensor.first_shard = static_cast<uint32_t>(shards);
    tensor.shard_count = record.tensor_shard_counts(i);
    shards += tensor.shard_count;
    if (shards > static_cast<uint64_t>(record.shard_checksums_size())) return CorruptOutcome("the number of shards");
    manifest.tensors.push_back(std::move(tensor));
  }
  if (dim != record.tensor_dims_size()) return CorruptOutcome("the number of dimensions");
  if (shards != static_cast<uint64_t>(record.shard_checksums_size())) return CorruptOutcome("the number of shards");
  return absl::OkStatus();
}

// Reads what is kept of tensors and objects beside their bytes.
absl::Status ReadSummaries(const v1::ManifestRecord& record, Manifest& manifest) {
  const auto tensors = static_cast<int>(manifest.tensors.size());
  if (record.has_summaries()) {
    if (!HasSummaries(record.summaries(), tensors)) return CorruptOutcome("the columns of the summaries");
    for (int i = 0; i < tensors; ++i) {
      manifest.summaries.push_back(SummaryAt(record.summaries(), i, manifest.tensors[static_cast<size_t>(i)].dtype));
    }
  }
  if (!record.has_histories() && !record.has_object_histories()) return absl::OkStatus();
  const int objects = record.object_names_size();
  auto of_tensors = HistoriesOf<1>(record.histories(), tensors);
  auto of_objects = HistoriesOf<3>(record.object_histories(), objects);
  if (!of_tensors.has_value() || !of_objects.has_value()) return CorruptOutcome("the columns of the histories");
  manifest.histories = *std::move(of_tensors);
  manifest.object_histories = *std::move(of_objects);
  return absl::OkStatus();
}

absl::Status ReadFiles(const v1::ManifestRecord& record, Manifest& manifest) {
  const int count = record.file_names_size();
  if (record.file_rank_deltas_size() != count || record.file_header_sizes_size() != count ||
      record.file_header_checksums_size() != count) {
    return CorruptOutcome("the columns of the files differ in length");
  }
  int64_t rank = 0;
  for (int i = 0; i < count; ++i) {
    rank += record.file_rank_deltas(i);
    const std::string& name = record.file_names(i);
    const uint64_t header = record.file_header_sizes(i);
    // The name becomes part of a path, so it must have the form of names from the planner.
    const bool plain = !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
    });
    if (!plain) return CorruptOutcome("a file's name");
    if (rank < 0 || rank > INT32_MAX) return CorruptOutcome(absl::StrCat("the rank of file ", name));
    if (header < kDataAlignment || header > kMaxHeaderBytes + 2 * kDataAlignment || header % kDataAlignment != 0) {
      return CorruptOutcome(absl::StrCat("the header length of file ", name));
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
    return CorruptOutcome("the columns of the shards differ in length");
  }
  uint64_t dims = 0;
  for (const ManifestTensor& tensor : manifest.tensors)
    dims += uint64_t{tensor.shard_count} * tensor.global_shape.size();
  if (static_cast<uint64_t>(record.shard_offset_deltas_size()) != dims ||
      static_cast<uint64_t>(record.shard_shape_deltas_size()) != dims ||
      2 * dims + 2 * static_cast<uint64_t>(flats) > UINT32_MAX) {
    return CorruptOutcome("the columns of the boxes differ in length");
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
        return CorruptOutcome(absl::StrCat("the place of a shard of ", tensor.name));
      }
      for (size_t d = 0; d < ndim; ++d, ++dim) {
        box.offset[d] = Sum(box.offset[d], record.shard_offset_deltas(dim));
        box.shape[d] = Sum(box.shape[d], record.shard_shape_deltas(dim));
      }
      if (!Contains(tensor.global_shape, box) || box.empty()) {
        return CorruptOutcome(absl::StrCat("a shard of ", tensor.name, " is empty or reaches outside"));
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
          return CorruptOutcome(absl::StrCat("a flat piece of ", tensor.name, " is empty or reaches outside"));
        }
        shard.flat = true;
        flat_end = begin + length;
        flat_length = length;
        manifest.dims.push_back(begin);
        manifest.dims.push_back(flat_end);
        if (++flat < flats) {
          const int64_t delta = record.flat_shard_deltas(flat);
          if (delta <= 0 || delta > count) return CorruptOutcome("flat pieces are not ascending");
          flat_shard += delta;
        }
      }
      manifest.shards.push_back(shard);
    }
  }
  if (flat != flats) return CorruptOutcome("a flat piece outside the shards");
  return absl::OkStatus();
}

absl::Status ReadObjects(const v1::ManifestRecord& record, Manifest& manifest) {
  const int count = record.object_checksums_size();
  if (record.object_ranks_size() != count || record.object_file_deltas_size() != count ||
      record.object_item_deltas_size() != count || record.object_slot_sizes_size() != count ||
      record.object_sizes_size() != count || record.object_entry_counts_size() != record.object_names_size()) {
    return CorruptOutcome("the columns of the objects differ in length");
  }
  int64_t file = 0, item = 0;
  int i = 0;
  for (int n = 0; n < record.object_names_size(); ++n) {
    const std::string& name = record.object_names(n);
    if (!CheckName(name).ok()) return CorruptOutcome("an object's name");
    if (n > 0 && name <= record.object_names(n - 1))
      return CorruptOutcome("objects are not in the order of their names");
    if (record.object_entry_counts(n) > static_cast<uint32_t>(count - i))
      return CorruptOutcome("the number of objects");
    for (uint32_t k = 0; k < record.object_entry_counts(n); ++k, ++i) {
      file += record.object_file_deltas(i);
      item += record.object_item_deltas(i);
      ManifestObject object;
      object.name = name;
      const uint32_t rank = record.object_ranks(i);
      if (rank > INT32_MAX) return CorruptOutcome(absl::StrCat("the rank of object ", name));
      if (rank > 0) object.rank = static_cast<int>(rank) - 1;
      object.slot_bytes = record.object_slot_sizes(i);
      object.bytes = record.object_sizes(i);
      if (file < 0 || file >= static_cast<int64_t>(manifest.files.size()) || item < 0 || item > INT32_MAX ||
          object.slot_bytes > uint64_t{1} << 40 || object.bytes > object.slot_bytes) {
        return CorruptOutcome(absl::StrCat("the place or length of object ", name));
      }
      object.file = static_cast<uint32_t>(file);
      object.item = static_cast<uint32_t>(item);
      object.crc32c = record.object_checksums(i);
      manifest.objects.push_back(std::move(object));
    }
  }
  if (i != count) return CorruptOutcome("the number of objects");
  return absl::OkStatus();
}

}  // namespace

void WriteManifestRecord(const Manifest& manifest, v1::ManifestRecord& record) {
  record.set_job(manifest.job);
  record.set_step(manifest.step);
  record.set_attempt(manifest.attempt);
  record.set_request_id(manifest.request_id);
  record.set_world_size(manifest.world_size);
  record.set_commit_time_unix_nanos(absl::ToUnixNanos(manifest.commit_time));
  record.set_writer(manifest.writer);
  record.set_plan_digest(manifest.plan_digest);
  record.set_line(manifest.lineage.line);
  if (manifest.lineage.continues_step.has_value()) record.set_continues_step(*manifest.lineage.continues_step);
  record.set_parent_line(manifest.lineage.parent_line);
  record.set_sequence(manifest.lineage.sequence);
  for (const Alarm& alarm : manifest.alarms) {
    v1::AlarmRecord& entry = *record.add_alarms();
    entry.set_kind(alarm.kind);
    entry.set_message(alarm.message);
  }
  for (const Metric& metric : manifest.metrics) {
    record.add_metric_names(metric.name);
    record.add_metric_values(metric.value);
  }
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
  for (const TensorSummary& summary : manifest.summaries) AppendSummary(summary, *record.mutable_summaries());
  for (const TensorHistory& history : manifest.histories) AppendHistory(history, *record.mutable_histories());
  for (const ObjectHistory& history : manifest.object_histories) {
    AppendHistory(history, *record.mutable_object_histories());
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

absl::StatusOr<Manifest> ReadManifestRecord(const v1::ManifestRecord& record) {
  Manifest manifest;
  CAIRN_RETURN_IF_ERROR(ReadWorld(record, manifest));
  CAIRN_RETURN_IF_ERROR(ReadTensors(record, manifest));
  CAIRN_RETURN_IF_ERROR(ReadFiles(record, manifest));
  CAIRN_RETURN_IF_ERROR(ReadShards(record, manifest));
  CAIRN_RETURN_IF_ERROR(ReadObjects(record, manifest));
  CAIRN_RETURN_IF_ERROR(ReadSummaries(record, manifest));
  if (record.alias_names_size() != record.alias_targets_size()) return CorruptOutcome("the columns of the aliases");
  for (int i = 0; i < record.alias_names_size(); ++i) {
    manifest.aliases.emplace_back(record.alias_names(i), record.alias_targets(i));
  }
  CAIRN_RETURN_IF_ERROR(manifest.PlaceItems());
  return manifest;
}

}  // namespace cairn
