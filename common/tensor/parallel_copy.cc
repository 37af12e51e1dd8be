#include "common/tensor/parallel_copy.h"

#include <algorithm>
#include <atomic>

#include "common/base/mutex.h"
#include "common/resources/thread.h"
#include "common/tensor/transposer.h"

namespace cairn {
namespace {

// Threads take the work in pieces of about this size.
constexpr int64_t kPieceBytes = int64_t{4} << 20;
// With less work than this, a second thread costs more than it saves.
constexpr int64_t kBytesPerThread = int64_t{2} << 20;

using Dimension = TiledCopy::Dimension;

// Splits a simplified copy into pieces for threads.
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
  // If the copy transposes axes, a piece consists of whole tiles.
  const int64_t tile = std::max<int64_t>(1, Transposer::kRun / copy.element_bytes);
  step = (step + tile - 1) / tile * tile;
  for (int64_t at = 0; at < outer.extent; at += step) {
    TiledCopy& piece = pieces.emplace_back(copy);
    piece.source += at * outer.source_stride;
    piece.target += at * outer.target_stride;
    piece.dimensions.front().extent = std::min(step, outer.extent - at);
  }
}

// Knows up to where all pieces are done. Thread-safe.
class WrittenPieces {
 public:
  WrittenPieces(const std::vector<TiledCopy>& pieces, const std::function<void(const std::byte* end)>& written)
      : pieces_(pieces), written_(written), done_(pieces.size()) {}

  // A thread calls it after its stores to the piece's target.
  void Done(size_t piece) {
    std::atomic_thread_fence(std::memory_order_seq_cst);  // stores that pass the caches obey no other order
    MutexLock lock(mutex_);
    done_[piece] = true;
    if (piece != first_open_) return;
    while (first_open_ < done_.size() && done_[first_open_]) ++first_open_;
    const TiledCopy& last = pieces_[first_open_ - 1];
    written_(last.target + last.elements() * last.target_element_bytes());
  }

 private:
  const std::vector<TiledCopy>& pieces_;
  const std::function<void(const std::byte* end)>& written_;
  Mutex mutex_;
  std::vector<bool> done_ ABSL_GUARDED_BY(mutex_);
  size_t first_open_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace

void ExecuteAll(std::vector<TiledCopy> copies, int64_t threads,
                const std::function<void(const std::byte* end)>& written) {
  std::vector<TiledCopy> pieces;
  int64_t total = 0;
  for (TiledCopy& copy : copies) {
    copy.Simplify();
    total += copy.source_bytes();
    Split(copy, pieces);
  }
  WrittenPieces done(pieces, written);
  InParallel(static_cast<int64_t>(pieces.size()), UsefulThreads(threads, total), [&](int64_t i) {
    Execute(pieces[static_cast<size_t>(i)]);
    if (written) done.Done(static_cast<size_t>(i));
  });
}

void InParallel(int64_t count, int64_t threads, const std::function<void(int64_t)>& work) {
  std::atomic<int64_t> next{0};
  RunOnThreads(static_cast<int>(std::min(threads, count)), [&] {
    for (int64_t i = next++; i < count; i = next++) work(i);
  });
}

int64_t UsefulThreads(int64_t threads, int64_t bytes) {
  return std::clamp<int64_t>(bytes / kBytesPerThread, 1, std::max<int64_t>(threads, 1));
}

}  // namespace cairn
