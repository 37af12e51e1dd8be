#include "python/native/trainer_memory.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/crc32c.h"
#include "common/tensor/fingerprint.h"
#include "common/tensor/parallel_copy.h"
#include "common/tensor/tiled_copy.h"
#include "python/native/copy_table.h"
#include "python/native/fingerprint_box.h"

namespace {

using cairn::ResolveWalk;
using cairn::Walk;
using Dimension = cairn::TiledCopy::Dimension;

// A tensor of numpy has at most so many axes.

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

// Hands the bytes of a walk to `Sink`, which has Add(const char*, size_t). It gathers small elements first.
template <typename Sink>
class Gatherer {
 public:
  explicit Gatherer(Sink& sink) : sink_(sink) {}
  ~Gatherer() { Flush(); }

  void Walk(const char* source, const cairn::Walk& walk, size_t depth = 0) {
    if (depth == walk.dimensions.size()) return Add(source, static_cast<size_t>(walk.element_bytes));
    const Dimension& d = walk.dimensions[depth];
    for (int64_t i = 0; i < d.extent; ++i) Walk(source + i * d.source_stride, walk, depth + 1);
  }

 private:
  void Add(const char* data, size_t bytes) {
    if (bytes >= sizeof(buffer_) / 4) {
      Flush();
      sink_.Add(data, bytes);
      return;
    }
    if (fill_ + bytes > sizeof(buffer_)) Flush();
    std::memcpy(buffer_ + fill_, data, bytes);
    fill_ += bytes;
  }
  void Flush() {
    if (fill_ > 0) sink_.Add(buffer_, fill_);
    fill_ = 0;
  }

  Sink& sink_;
  size_t fill_ = 0;
  char buffer_[8192];
};

struct Checksum {
  void Add(const char* data, size_t bytes) { crc = cairn::ExtendCrc32c(crc, data, bytes); }
  uint32_t crc = 0;
};

template <typename Sink>
void SumWalk(const Walk& walk, Sink& sink) {
  if (walk.bytes() > 0) Gatherer<Sink>(sink).Walk(walk.source, walk);
}

// Reads the walks whose sources are summed. Returns the index of the first copy that is not valid, or -1.
int64_t ReadWalks(const CairnCopy* copies, int64_t count, const int64_t* dimensions, std::vector<Walk>& walks,
                  int64_t& bytes) {
  for (int64_t i = 0; i < count; ++i) {
    std::optional<Walk> walk = ResolveWalk(copies[i], dimensions, /*with_target=*/false);
    if (!walk.has_value()) return i;
    Simplify(*walk);
    bytes += walk->bytes();
    walks.push_back(std::move(*walk));
  }
  return -1;
}

}  // namespace

int64_t cairn_copy(const CairnCopy* copies, int64_t count, const int64_t* dimensions, int64_t threads, const void* base,
                   uint64_t* written) {
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
  if (written == nullptr) {
    cairn::ExecuteAll(std::move(all), threads);
  } else {
    cairn::ExecuteAll(std::move(all), threads, [&](const std::byte* end) {
      __atomic_store_n(written, static_cast<uint64_t>(end - static_cast<const std::byte*>(base)), __ATOMIC_SEQ_CST);
    });
  }
  return -1;
}

int64_t cairn_checksum(const CairnCopy* copies, int64_t count, const int64_t* dimensions, int64_t threads,
                       uint32_t* checksums) {
  std::vector<Walk> walks;
  int64_t total = 0;
  if (const int64_t bad = ReadWalks(copies, count, dimensions, walks, total); bad >= 0) return bad;
  cairn::InParallel(count, cairn::UsefulThreads(threads, total), [&](int64_t i) {
    Checksum checksum;
    SumWalk(walks[static_cast<size_t>(i)], checksum);
    checksums[i] = checksum.crc;
  });
  return -1;
}

int64_t cairn_fingerprint(const CairnCopy* copies, int64_t count, const int64_t* dimensions, int64_t threads,
                          const int64_t* boxes, uint64_t* parts) {
  std::vector<Walk> walks;
  int64_t total = 0;
  if (const int64_t bad = ReadWalks(copies, count, dimensions, walks, total); bad >= 0) return bad;
  std::vector<cairn::FingerprintPart> sums;
  for (int64_t i = 0; i < count; ++i) {
    std::optional<cairn::FingerprintPart> part =
        cairn::ReadFingerprintBox(boxes, walks[static_cast<size_t>(i)].bytes());
    if (!part.has_value()) return i;
    sums.push_back(*std::move(part));
  }
  cairn::InParallel(count, cairn::UsefulThreads(threads, total), [&](int64_t i) {
    cairn::FingerprintPart& part = sums[static_cast<size_t>(i)];
    SumWalk(walks[static_cast<size_t>(i)], part);
    parts[i] = part.Value();
  });
  return -1;
}

uint64_t cairn_store_then_load(uint64_t* store, uint64_t value, const uint64_t* load) {
  __atomic_store_n(store, value, __ATOMIC_SEQ_CST);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  return __atomic_load_n(load, __ATOMIC_SEQ_CST);
}

int64_t cairn_interface_version() { return 11; }
