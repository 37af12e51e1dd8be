#include "python/native/trainer_memory.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "common/base/crc32c.h"
#include "common/tensor/parallel_copy.h"
#include "common/tensor/tiled_copy.h"
#include "python/native/copy_table.h"

namespace {

using cairn::ResolveWalk;
using cairn::Walk;
using Dimension = cairn::TiledCopy::Dimension;

// Makes fewer, larger dimensions with the same elements in the same order.
void Simplify(Walk& walk) {
  std::erase_if(walk.dimensions, [](const Dimension& d) { return d.extent == 1; });
  std::vector<Dimension> merged;  // innermost first
  for (auto d = walk.dimensions.rbegin(); d != walk.dimensions.rend(); ++d) {
    if (merged.empty() && d->source_stride == walk.element_bytes) {
      walk.element_bytes *= d->extent;
    } else if (!merged.empty() && d->source_stride == merged.back().source_stride * merged.back().extent) {
      merged.back().extent *= d->extent;
    } else {
      merged.push_back(*d);
    }
  }
  std::reverse(merged.begin(), merged.end());
  walk.dimensions = std::move(merged);
}

// Sums the bytes of a walk. It gathers small elements first.
class Summer {
 public:
  void Add(const char* data, int64_t bytes) {
    if (bytes >= static_cast<int64_t>(sizeof(buffer_) / 4)) {
      Flush();
      crc_ = cairn::ExtendCrc32c(crc_, data, static_cast<size_t>(bytes));
      return;
    }
    if (fill_ + static_cast<size_t>(bytes) > sizeof(buffer_)) Flush();
    std::memcpy(buffer_ + fill_, data, static_cast<size_t>(bytes));
    fill_ += static_cast<size_t>(bytes);
  }
  uint32_t Finish() {
    Flush();
    return crc_;
  }

 private:
  void Flush() {
    crc_ = cairn::ExtendCrc32c(crc_, buffer_, fill_);
    fill_ = 0;
  }
  uint32_t crc_ = 0;
  size_t fill_ = 0;
  char buffer_[8192];
};

void SumWalk(const char* source, const Walk& walk, size_t depth, Summer& summer) {
  if (depth == walk.dimensions.size()) return summer.Add(source, walk.element_bytes);
  const Dimension& d = walk.dimensions[depth];
  for (int64_t i = 0; i < d.extent; ++i) SumWalk(source + i * d.source_stride, walk, depth + 1, summer);
}

}  // namespace

int64_t cairn_copy(const CairnCopy* copies, int64_t count, const int64_t* dimensions, int64_t threads) {
  std::vector<cairn::TiledCopy> all;
  for (int64_t i = 0; i < count; ++i) {
    std::optional<Walk> walk = ResolveWalk(copies[i], dimensions, /*with_target=*/true);
    if (!walk.has_value()) return i;
    all.push_back({.source = reinterpret_cast<const std::byte*>(walk->source),
                   .target = reinterpret_cast<std::byte*>(walk->target),
                   .element_bytes = walk->element_bytes,
                   .dimensions = std::move(walk->dimensions),
                   .casts = std::move(walk->casts)});
  }
  cairn::ExecuteAll(std::move(all), threads);
  return -1;
}

int64_t cairn_checksum(const CairnCopy* copies, int64_t count, const int64_t* dimensions, int64_t threads,
                       uint32_t* checksums) {
  std::vector<Walk> walks;
  int64_t total = 0;
  for (int64_t i = 0; i < count; ++i) {
    std::optional<Walk> walk = ResolveWalk(copies[i], dimensions, /*with_target=*/false);
    if (!walk.has_value()) return i;
    Simplify(*walk);
    total += walk->bytes();
    walks.push_back(std::move(*walk));
  }
  cairn::InParallel(count, cairn::UsefulThreads(threads, total), [&](int64_t i) {
    const Walk& walk = walks[static_cast<size_t>(i)];
    Summer summer;
    if (walk.bytes() > 0) SumWalk(walk.source, walk, 0, summer);
    checksums[i] = summer.Finish();
  });
  return -1;
}

uint64_t cairn_store_then_load(uint64_t* store, uint64_t value, const uint64_t* load) {
  __atomic_store_n(store, value, __ATOMIC_SEQ_CST);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  return __atomic_load_n(load, __ATOMIC_SEQ_CST);
}

int64_t cairn_interface_version() { return 5; }
