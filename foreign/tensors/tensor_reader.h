// Reads parts of whole tensors into memory. It takes the elements from the stored shards, and permutes and casts them
// as the mapping says.
#ifndef CAIRN_FOREIGN_TENSORS_TENSOR_READER_H_
#define CAIRN_FOREIGN_TENSORS_TENSOR_READER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/format/manifest.h"
#include "common/resources/aligned_buffer.h"
#include "foreign/tensors/item_reader.h"
#include "foreign/tensors/whole_tensors.h"
#include "planner/load/overlap.h"
#include "store/storage/storage.h"

namespace cairn {

// The elements [begin, end) of one tensor, counted row-major. They are written at byte `at` of a window.
struct TensorPart {
  const WholeTensor* tensor = nullptr;
  int64_t begin = 0;
  int64_t end = 0;
  uint64_t at = 0;
};

struct TensorReaderOptions {
  int threads = 2;
  // Called often; if it returns true, reading ends.
  std::function<bool()> interrupted;
};

// Every block that is read is verified, if its file has checksums. Not thread-safe.
class TensorReader {
 public:
  // `storage` may be null if all files are imported ones. It and `manifest` must outlive the reader.
  TensorReader(Storage* storage, const Manifest& manifest, const TensorReaderOptions& options);

  // Returns how much memory the reader itself takes.
  uint64_t buffer_bytes() const;

  // Writes the parts into `window`. Bytes of the window that no part covers stay as they are. CANCELLED (INTERRUPTED).
  // RESOURCE_EXHAUSTED (MEMORY_LIMIT). Otherwise it fails as ItemReader does.
  absl::Status Read(std::span<const TensorPart> parts, char* window);

 private:
  using PlacedOverlaps = std::vector<std::pair<Overlap, uint64_t>>;  // with the place of their part in the window
  struct Task {
    const ManifestShard* shard;
    uint64_t begin;
    uint64_t bytes;
    const PlacedOverlaps* overlaps;
  };

  void AddTasks(const ManifestShard& shard, const PlacedOverlaps& overlaps, std::vector<Task>& tasks) const;
  absl::Status RunTasks(const std::vector<Task>& tasks, char* window);
  absl::Status RunTask(const Task& task, std::byte* chunk, char* window);

  const Manifest& manifest_;
  const TensorReaderOptions options_;
  ItemReader reader_;
  std::vector<AlignedBuffer> chunks_;  // one for each thread
};

}  // namespace cairn

#endif  // CAIRN_FOREIGN_TENSORS_TENSOR_READER_H_
