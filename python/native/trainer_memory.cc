#include "python/native/trainer_memory.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include "common/base/crc32c.h"
#include "common/tensor/tiled_copy.h"
#include "common/tensor/transposer.h"

namespace {

constexpr int64_t kMaxDimensions = 32;
constexpr int64_t kMaxCasts = 32;
// Threads take the work in pieces of about this size.
constexpr int64_t kPieceBytes = int64_t{4} << 20;
// With less work than this, a second thread costs more than it saves.
constexpr int64_t kBytesPerThread = int64_t{2} << 20;

using cairn::TiledCopy;
using Dimension = TiledCopy::Dimension;

// A copy with its pointers resolved; its outermost dimension comes first.
struct Walk {
  const char* source;
  char* target;
  int64_t element_bytes;
  std::vector<Dimension> dimensions;
  cairn::CastChain casts;

  int64_t target_element_bytes() const { return casts.empty() ? element_bytes : cairn::BytesOf(casts.back()); }
  int64_t bytes() const {
    int64_t total = element_bytes;
    for (const Dimension& d : dimensions) total *= d.extent;
    return total;
  }
};

// Returns true if every element of the walk lies within [0, bytes). No arithmetic can overflow unnoticed.
bool Within(int64_t offset, int64_t element_bytes, const std::vector<Dimension>& dimensions,
            int64_t Dimension::* stride, int64_t bytes) {
  int64_t low = offset;
  int64_t high = offset;
  for (const Dimension& d : dimensions) {
    if (d.extent == 0) return true;
    int64_t reach;
    if (__builtin_mul_overflow(d.extent - 1, d.*stride, &reach)) return false;
    if (__builtin_add_overflow(reach < 0 ? low : high, reach, reach < 0 ? &low : &high)) return false;
  }
  return low >= 0 && !__builtin_add_overflow(high, element_bytes, &high) && high <= bytes;
}

// Returns nothing if the copy is not sound.
std::optional<Walk> Resolve(const CairnCopy& copy, const int64_t* numbers, bool with_target) {
  const int64_t n = copy.dimensions;
  if (n < 0 || n > kMaxDimensions || copy.element_bytes < 0) return std::nullopt;
  Walk walk{.source = static_cast<const char*>(copy.source) + copy.source_offset,
            .target = static_cast<char*>(copy.target) + copy.target_offset,
            .element_bytes = copy.element_bytes,
            .dimensions = {},
            .casts = {}};
  const int64_t* at = numbers + copy.first_dimension;
  for (int64_t i = 0; i < n; ++i) {
    if (at[i] < 0) return std::nullopt;
    walk.dimensions.push_back({at[i], at[n + i], at[2 * n + i]});
  }
  if (copy.casts < 0 || copy.casts == 1 || copy.casts > kMaxCasts) return std::nullopt;
  for (int64_t i = 0; i < copy.casts; ++i) {
    const int64_t number = at[3 * n + i];
    const auto dtype = number < 0 || number > 255 ? std::nullopt : cairn::DTypeFromNumber(static_cast<int>(number));
    if (!dtype || !cairn::IsCastable(*dtype)) return std::nullopt;
    walk.casts.push_back(*dtype);
  }
  if (!walk.casts.empty() && walk.element_bytes != cairn::BytesOf(walk.casts.front())) return std::nullopt;
  if (copy.source_bytes >= 0 &&
      !Within(copy.source_offset, copy.element_bytes, walk.dimensions, &Dimension::source_stride, copy.source_bytes)) {
    return std::nullopt;
  }
  if (with_target && copy.target_bytes >= 0 &&
      !Within(copy.target_offset, walk.target_element_bytes(), walk.dimensions, &Dimension::target_stride,
              copy.target_bytes)) {
    return std::nullopt;
  }
  return walk;
}

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

// Cuts a simplified copy into pieces that threads may take.
void Split(const TiledCopy& copy, std::vector<TiledCopy>& pieces) {
  const int64_t bytes = copy.source_bytes();
  if (bytes == 0) return;
  if (copy.dimensions.empty()) {
    if (copy.is_cast()) return pieces.push_back(copy);
    for (int64_t at = 0; at < bytes; at += kPieceBytes) {
      TiledCopy& piece = pieces.emplace_back(copy);
      piece.source += at;
      piece.target += at;
      piece.element_bytes = std::min(kPieceBytes, bytes - at);
    }
    return;
  }
  const Dimension outer = copy.dimensions.front();
  int64_t step = std::clamp<int64_t>(kPieceBytes / (bytes / outer.extent), 1, outer.extent);
  // If the order of axes changes, a piece is whole tiles.
  const int64_t tile = std::max<int64_t>(1, cairn::Transposer::kRun / copy.element_bytes);
  step = (step + tile - 1) / tile * tile;
  for (int64_t at = 0; at < outer.extent; at += step) {
    TiledCopy& piece = pieces.emplace_back(copy);
    piece.source += at * outer.source_stride;
    piece.target += at * outer.target_stride;
    piece.dimensions.front().extent = std::min(step, outer.extent - at);
  }
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

// Calls work(0) .. work(count - 1) from up to `threads` threads, this one included.
void Parallel(int64_t count, int64_t threads, const std::function<void(int64_t)>& work) {
  std::atomic<int64_t> next{0};
  auto run = [&] {
    for (int64_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::thread> helpers;
  for (int64_t i = 1; i < std::min(threads, count); ++i) {
    try {
      helpers.emplace_back(run);
    } catch (const std::system_error&) {
      break;  // the system refuses more threads, so those that run do the work
    }
  }
  run();
  for (std::thread& helper : helpers) helper.join();
}

int64_t Useful(int64_t threads, int64_t bytes) {
  return std::clamp<int64_t>(bytes / kBytesPerThread, 1, std::max<int64_t>(threads, 1));
}

}  // namespace

int64_t cairn_copy(const CairnCopy* copies, int64_t count, const int64_t* dimensions, int64_t threads) {
  std::vector<TiledCopy> pieces;
  int64_t total = 0;
  for (int64_t i = 0; i < count; ++i) {
    std::optional<Walk> walk = Resolve(copies[i], dimensions, /*with_target=*/true);
    if (!walk.has_value()) return i;
    TiledCopy copy = {.source = reinterpret_cast<const std::byte*>(walk->source),
                      .target = reinterpret_cast<std::byte*>(walk->target),
                      .element_bytes = walk->element_bytes,
                      .dimensions = std::move(walk->dimensions),
                      .casts = std::move(walk->casts)};
    copy.Simplify();
    total += copy.source_bytes();
    Split(copy, pieces);
  }
  Parallel(static_cast<int64_t>(pieces.size()), Useful(threads, total),
           [&](int64_t i) { cairn::Execute(pieces[static_cast<size_t>(i)]); });
  return -1;
}

int64_t cairn_checksum(const CairnCopy* copies, int64_t count, const int64_t* dimensions, int64_t threads,
                       uint32_t* checksums) {
  std::vector<Walk> walks;
  int64_t total = 0;
  for (int64_t i = 0; i < count; ++i) {
    std::optional<Walk> walk = Resolve(copies[i], dimensions, /*with_target=*/false);
    if (!walk.has_value()) return i;
    Simplify(*walk);
    total += walk->bytes();
    walks.push_back(std::move(*walk));
  }
  Parallel(count, Useful(threads, total), [&](int64_t i) {
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

int64_t cairn_interface_version() { return 2; }
