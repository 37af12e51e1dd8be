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

namespace {

constexpr int64_t kMaxDimensions = 32;
// Work is handed to threads in pieces of about this size.
constexpr int64_t kPieceBytes = int64_t{4} << 20;
// Below this a second thread costs more than it saves.
constexpr int64_t kBytesPerThread = int64_t{2} << 20;

struct Dimension {
  int64_t extent;
  int64_t source_stride;
  int64_t target_stride;
};

// A copy with its pointers resolved; outermost dimension first.
struct Walk {
  const char* source;
  char* target;
  int64_t element_bytes;
  std::vector<Dimension> dimensions;

  int64_t bytes() const {
    int64_t total = element_bytes;
    for (const Dimension& d : dimensions) total *= d.extent;
    return total;
  }
};

// True if every element of the walk lies within [0, bytes). All arithmetic is checked.
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

// Nothing if the copy is not sound.
std::optional<Walk> Resolve(const CairnCopy& copy, const int64_t* numbers, bool with_target) {
  const int64_t n = copy.dimensions;
  if (n < 0 || n > kMaxDimensions || copy.element_bytes < 0) return std::nullopt;
  Walk walk{.source = static_cast<const char*>(copy.source) + copy.source_offset,
            .target = static_cast<char*>(copy.target) + copy.target_offset,
            .element_bytes = copy.element_bytes,
            .dimensions = {}};
  const int64_t* at = numbers + copy.first_dimension;
  for (int64_t i = 0; i < n; ++i) {
    if (at[i] < 0) return std::nullopt;
    walk.dimensions.push_back({at[i], at[n + i], at[2 * n + i]});
  }
  if (copy.source_bytes >= 0 &&
      !Within(copy.source_offset, copy.element_bytes, walk.dimensions, &Dimension::source_stride, copy.source_bytes)) {
    return std::nullopt;
  }
  if (with_target && copy.target_bytes >= 0 &&
      !Within(copy.target_offset, copy.element_bytes, walk.dimensions, &Dimension::target_stride, copy.target_bytes)) {
    return std::nullopt;
  }
  return walk;
}

// Fewer, larger dimensions with the same meaning. `reorder` allows another order of the elements.
void Simplify(Walk& walk, bool reorder) {
  std::erase_if(walk.dimensions, [](const Dimension& d) { return d.extent == 1; });
  if (reorder) {
    // The target is walked as it lies in memory, so that its cache lines are filled once.
    std::stable_sort(walk.dimensions.begin(), walk.dimensions.end(), [](const Dimension& a, const Dimension& b) {
      return std::abs(a.target_stride) > std::abs(b.target_stride);
    });
  }
  std::vector<Dimension> merged;  // innermost first
  for (auto d = walk.dimensions.rbegin(); d != walk.dimensions.rend(); ++d) {
    if (merged.empty() && d->source_stride == walk.element_bytes && d->target_stride == walk.element_bytes) {
      walk.element_bytes *= d->extent;
    } else if (!merged.empty() && d->source_stride == merged.back().source_stride * merged.back().extent &&
               d->target_stride == merged.back().target_stride * merged.back().extent) {
      merged.back().extent *= d->extent;
    } else {
      merged.push_back(*d);
    }
  }
  std::reverse(merged.begin(), merged.end());
  walk.dimensions = std::move(merged);
}

// Cuts a walk into pieces that threads may take.
void Split(const Walk& walk, std::vector<Walk>& pieces) {
  const int64_t bytes = walk.bytes();
  if (bytes == 0) return;
  if (walk.dimensions.empty()) {
    for (int64_t at = 0; at < bytes; at += kPieceBytes) {
      pieces.push_back({walk.source + at, walk.target + at, std::min(kPieceBytes, bytes - at), {}});
    }
    return;
  }
  const Dimension outer = walk.dimensions.front();
  const int64_t step = std::clamp<int64_t>(kPieceBytes / (bytes / outer.extent), 1, outer.extent);
  for (int64_t at = 0; at < outer.extent; at += step) {
    Walk piece = walk;
    piece.source += at * outer.source_stride;
    piece.target += at * outer.target_stride;
    piece.dimensions.front().extent = std::min(step, outer.extent - at);
    pieces.push_back(std::move(piece));
  }
}

template <size_t kBytes>
void CopyRow(const char* source, char* target, const Dimension& d) {
  for (int64_t i = 0; i < d.extent; ++i) {
    std::memcpy(target + i * d.target_stride, source + i * d.source_stride, kBytes);
  }
}

void CopyWalk(const char* source, char* target, const Walk& walk, size_t depth) {
  if (depth == walk.dimensions.size()) {
    std::memcpy(target, source, static_cast<size_t>(walk.element_bytes));
    return;
  }
  const Dimension& d = walk.dimensions[depth];
  if (depth + 1 == walk.dimensions.size()) {
    switch (walk.element_bytes) {
      case 1:
        return CopyRow<1>(source, target, d);
      case 2:
        return CopyRow<2>(source, target, d);
      case 4:
        return CopyRow<4>(source, target, d);
      case 8:
        return CopyRow<8>(source, target, d);
      case 16:
        return CopyRow<16>(source, target, d);
      default:
        break;
    }
  }
  for (int64_t i = 0; i < d.extent; ++i) {
    CopyWalk(source + i * d.source_stride, target + i * d.target_stride, walk, depth + 1);
  }
}

// Small elements are gathered before they are summed.
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
      break;  // no more threads to be had: those that run do the work
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
  std::vector<Walk> pieces;
  int64_t total = 0;
  for (int64_t i = 0; i < count; ++i) {
    std::optional<Walk> walk = Resolve(copies[i], dimensions, /*with_target=*/true);
    if (!walk.has_value()) return i;
    Simplify(*walk, /*reorder=*/true);
    total += walk->bytes();
    Split(*walk, pieces);
  }
  Parallel(static_cast<int64_t>(pieces.size()), Useful(threads, total), [&](int64_t i) {
    const Walk& piece = pieces[static_cast<size_t>(i)];
    CopyWalk(piece.source, piece.target, piece, 0);
  });
  return -1;
}

int64_t cairn_checksum(const CairnCopy* copies, int64_t count, const int64_t* dimensions, int64_t threads,
                       uint32_t* checksums) {
  std::vector<Walk> walks;
  int64_t total = 0;
  for (int64_t i = 0; i < count; ++i) {
    std::optional<Walk> walk = Resolve(copies[i], dimensions, /*with_target=*/false);
    if (!walk.has_value()) return i;
    for (Dimension& d : walk->dimensions) d.target_stride = d.source_stride;  // merges depend on the source alone
    Simplify(*walk, /*reorder=*/false);
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

int64_t cairn_interface_version() { return 1; }
