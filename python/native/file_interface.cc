#include "python/native/file_interface.h"

#include <algorithm>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/tensor/box.h"
#include "python/native/file_pieces.h"
#include "python/native/file_reader.h"

namespace {

using Handle = std::shared_ptr<cairn::FileRead>;

// A tensor of numpy has at most so many axes.
constexpr int64_t kMaxAxes = 64;
constexpr int64_t kMaxThreads = 256;
// A gap between bytes that other processes want too is worth reading: they want what is in it. Otherwise only a short
// gap costs less than another read.
constexpr int64_t kSharedGap = int64_t{1} << 20;
constexpr int64_t kOwnGap = int64_t{64} << 10;

// Returns nothing if the shard is not valid, or leaves its file.
std::optional<cairn::FileShard> ReadShard(const CairnFileShard& from, const int64_t* numbers,
                                          std::span<const int64_t> file_bytes) {
  if (from.file < 0 || from.file >= static_cast<int64_t>(file_bytes.size()) || from.position < 0 ||
      from.element_bytes < 1 || from.element_bytes > 16 || from.axes < 0 || from.axes > kMaxAxes) {
    return std::nullopt;
  }
  const int64_t* const global = numbers + from.first;
  const int64_t *offset = global + from.axes, *shape = offset + from.axes, *strides = shape + from.axes;
  cairn::FileShard shard;
  shard.file = static_cast<size_t>(from.file);
  shard.position = from.position;
  shard.element_bytes = from.element_bytes;
  shard.global_shape.assign(global, offset);
  shard.box = {{offset, shape}, {shape, strides}};
  shard.range = {from.range_begin, from.range_end};
  shard.target = static_cast<std::byte*>(from.target);
  shard.flat = from.flat != 0;
  shard.target_strides.assign(strides, strides + (shard.flat ? 1 : from.axes));
  const auto elements = cairn::ElementCount(shard.global_shape);
  int64_t end = 0;
  if (!elements.has_value() || !cairn::Contains(shard.global_shape, shard.box) ||
      __builtin_mul_overflow(*elements, from.element_bytes, &end) || __builtin_add_overflow(end, from.position, &end) ||
      end > file_bytes[shard.file]) {
    return std::nullopt;
  }
  const int64_t held = shard.box.size();
  const bool inside = shard.range.begin >= 0 && shard.range.begin <= shard.range.end && shard.range.end <= held;
  if (!inside || (!shard.flat && shard.range.size() != held)) return std::nullopt;
  return shard;
}

}  // namespace

void* cairn_file_read_begin(const char* const* paths, const int64_t* file_bytes, int64_t files,
                            const CairnFileShard* shards, int64_t count, const int64_t* numbers, int64_t threads,
                            int64_t shared, int64_t* bad) {
  *bad = -1;
  try {
    std::vector<cairn::FileShard> wanted;
    wanted.reserve(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      auto shard = ReadShard(shards[i], numbers, {file_bytes, static_cast<size_t>(files)});
      if (!shard.has_value()) {
        *bad = i;
        return nullptr;
      }
      wanted.push_back(*std::move(shard));
    }
    std::vector<cairn::FileRead::Source> sources;
    sources.reserve(static_cast<size_t>(files));
    for (int64_t i = 0; i < files; ++i) sources.push_back({paths[i], file_bytes[i]});
    return new Handle(cairn::FileRead::Begin(sources, cairn::CutShards(wanted, shared != 0 ? kSharedGap : kOwnGap),
                                             static_cast<int>(std::clamp<int64_t>(threads, 1, kMaxThreads)),
                                             shared != 0));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

int64_t cairn_file_read_wait(void* read, double seconds, CairnFileOutcome* outcome) {
  const cairn::FileReadOutcome found = (*static_cast<Handle*>(read))->Wait(absl::Seconds(seconds));
  *outcome = {.kind = static_cast<int64_t>(found.kind),
              .error = found.error,
              .file = static_cast<int64_t>(found.file),
              .offset = found.offset,
              .cached_bytes = found.cached_bytes,
              .buffered_bytes = found.buffered_bytes,
              .direct_bytes = found.direct_bytes};
  return found.kind == cairn::FileReadOutcome::Kind::kRunning ? 0 : 1;
}

void cairn_file_read_cancel(void* read) { (*static_cast<Handle*>(read))->Cancel(); }

void cairn_file_read_free(void* read) { delete static_cast<Handle*>(read); }
