#include "foreign/tensors/tensor_reader.h"

#include <algorithm>

#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/tensor/tiled_copy.h"

namespace cairn {
namespace {

// A thread reads this much at once. It is a multiple of the blocks of checksums.
constexpr uint64_t kChunkBytes = 8 * kChecksumBlockBytes;

}  // namespace

TensorReader::TensorReader(Storage* storage, const Manifest& manifest, const TensorReaderOptions& options)
    : manifest_(manifest), options_(options), reader_(storage, manifest) {}

uint64_t TensorReader::buffer_bytes() const {
  return static_cast<uint64_t>(std::max(options_.threads, 1)) * kChunkBytes;
}

absl::Status TensorReader::Read(std::span<const TensorPart> parts, char* window) {
  // The overlaps are grouped by shard, in the order of the files.
  std::map<std::tuple<uint32_t, uint64_t, uint32_t>, PlacedOverlaps> by_shard;
  for (const TensorPart& part : parts) {
    if (part.begin == part.end) continue;
    const Piece target{WholeBox(part.tensor->plain.shape), FlatRange{part.begin, part.end}};
    const Box bounds = BoundsOf(target);
    for (const AxisMap& link : part.tensor->links) {
      const auto source_bounds = link.SourceBounds(bounds);
      if (!source_bounds) continue;
      const ManifestTensor& tensor = manifest_.tensors[link.source];
      for (uint32_t s = tensor.first_shard; s < tensor.first_shard + tensor.shard_count; ++s) {
        const ManifestShard& shard = manifest_.shards[s];
        if (!Intersect(*source_bounds, manifest_.box_of(shard))) continue;
        Overlap overlap({manifest_.box_of(shard), manifest_.flat_range_of(shard)}, target, &link);
        if (overlap.empty()) continue;
        by_shard[{shard.file, shard.file_offset, s}].emplace_back(std::move(overlap), part.at);
      }
    }
  }
  std::vector<Task> tasks;
  for (const auto& [key, overlaps] : by_shard) AddTasks(manifest_.shards[std::get<2>(key)], overlaps, tasks);
  return RunTasks(tasks, window);
}

// Adds the blocks of a shard that are needed; neighbours become one task.
void TensorReader::AddTasks(const ManifestShard& shard, const PlacedOverlaps& overlaps,
                            std::vector<Task>& tasks) const {
  const auto width = static_cast<uint64_t>(BytesOf(manifest_.tensors[shard.tensor].dtype));
  std::vector<bool> needed(ChecksumBlockCount(shard.bytes));
  const auto need = [&](FlatRange run) {
    const uint64_t first = static_cast<uint64_t>(run.begin) * width / kChecksumBlockBytes;
    const uint64_t last = (static_cast<uint64_t>(run.end) * width - 1) / kChecksumBlockBytes;
    for (uint64_t block = first; block <= last; ++block) needed[block] = true;
  };
  std::vector<FlatRange> runs;
  for (const auto& [overlap, at] : overlaps) {
    if (overlap.contiguous() || needed.size() == 1) {
      need(overlap.source_span());
      continue;
    }
    runs.clear();
    overlap.AppendRuns(runs);
    for (const FlatRange& run : runs) need(run);
  }
  for (uint64_t block = 0; block < needed.size();) {
    if (!needed[block]) {
      ++block;
      continue;
    }
    uint64_t end = block;
    while (end < needed.size() && needed[end] && end - block < kChunkBytes / kChecksumBlockBytes) ++end;
    const uint64_t begin = block * kChecksumBlockBytes;
    tasks.push_back({&shard, begin, std::min(end * kChecksumBlockBytes, shard.bytes) - begin, &overlaps});
    block = end;
  }
}

absl::Status TensorReader::RunTasks(const std::vector<Task>& tasks, char* window) {
  while (chunks_.size() < static_cast<size_t>(std::max(options_.threads, 1))) {
    chunks_.emplace_back(ItemReader::ScratchBytes(kChunkBytes));
  }
  return ForEachOnThreads("to read tensors", tasks.size(), static_cast<int>(chunks_.size()), [&](size_t i, int thread) {
    if (options_.interrupted && options_.interrupted()) return MakeError(Reason::kInterrupted, "interrupted");
    return RunTask(tasks[i], reinterpret_cast<std::byte*>(chunks_[static_cast<size_t>(thread)].data()), window);
  });
}

absl::Status TensorReader::RunTask(const Task& task, std::byte* chunk, char* window) {
  auto* const target = reinterpret_cast<std::byte*>(window);
  const int width = BytesOf(manifest_.tensors[task.shard->tensor].dtype);
  const FlatRange part{static_cast<int64_t>(task.begin) / width, static_cast<int64_t>(task.begin + task.bytes) / width};
  std::vector<TiledCopy> planned;
  std::vector<int64_t> source_offsets;  // of these
  std::vector<StridedCopy> copies;
  for (const auto& [overlap, at] : *task.overlaps) {
    const FlatRange span = overlap.source_span();
    if (span.end <= part.begin || span.begin >= part.end) continue;
    copies.clear();
    overlap.AppendCopies(part, width, copies);
    for (const StridedCopy& strided : copies) {
      const bool whole = strided.extent.empty() && strided.element_bytes == static_cast<int64_t>(task.bytes);
      if (whole && task.overlaps->size() == 1 && copies.size() == 1 && overlap.casts().empty()) {
        return reader_.Read(*task.shard, task.begin, task.bytes, target + at + strided.target_offset, chunk);
      }
      TiledCopy& copy = planned.emplace_back();
      source_offsets.push_back(strided.source_offset);
      copy.target = target + at + strided.target_offset;
      copy.element_bytes = strided.element_bytes;
      for (size_t d = 0; d < strided.extent.size(); ++d) {
        copy.dimensions.push_back({strided.extent[d], strided.source_stride[d], strided.target_stride[d]});
      }
      copy.casts = overlap.casts();
      copy.Simplify();
    }
  }
  CAIRN_ASSIGN_OR_RETURN(const std::byte* source, reader_.ReadInto(*task.shard, task.begin, task.bytes, chunk));
  for (size_t i = 0; i < planned.size(); ++i) {
    planned[i].source = source + source_offsets[i];
    Execute(planned[i]);
  }
  return absl::OkStatus();
}

}  // namespace cairn
