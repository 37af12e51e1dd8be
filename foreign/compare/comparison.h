// Compares two checkpoints tensor by tensor, whatever their layouts, and gives each tensor's fingerprint.
#ifndef CAIRN_FOREIGN_COMPARE_COMPARISON_H_
#define CAIRN_FOREIGN_COMPARE_COMPARISON_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/format/manifest.h"
#include "common/tensor/box.h"
#include "common/tensor/dtype.h"
#include "foreign/tensors/whole_tensors.h"
#include "store/storage/storage.h"

namespace cairn {

// One of the two checkpoints. `storage` may be null if all files are imported ones. Both must outlive the call.
struct ComparedCheckpoint {
  Storage* storage = nullptr;
  const Manifest* manifest = nullptr;
  // Chooses which names are compared, and, with a mapping, from which stored tensors each is made.
  TensorChoice choice;
};

enum class Difference {
  kNone,
  kValues,
  kShape,
  kDtype,
  kOnlyFirst,   // the second has no such name
  kOnlySecond,  // the first has no such name
};

// The tensor or object that one side has under a name.
struct ComparedItem {
  DType dtype = DType::kUnspecified;  // not set for an object
  Shape shape;
  uint64_t bytes = 0;
  // A tensor's fingerprint (common/tensor/fingerprint.h), if both sides have the name with the same dtype and shape.
  std::optional<uint64_t> fingerprint;
  // The SHA-256 of an object's canonical bytes (CanonicalObject), if both sides have the name; else empty.
  std::string digest;
};

struct ComparedName {
  std::string name;
  bool object = false;
  std::optional<int> rank;  // set for an object of which every rank has its own
  Difference difference = Difference::kNone;
  // Both manifests have the same fingerprint, and no byte was read.
  bool by_fingerprint = false;
  std::optional<ComparedItem> first;
  std::optional<ComparedItem> second;
  // If the values differ: the number of elements that differ, and the row-major index of the first one. For an object
  // these count bytes.
  uint64_t differing = 0;
  uint64_t first_differing = 0;
  // If elements of a tensor differ: the largest absolute difference, and its row-major index. Unset if every pair that
  // differs has a NaN on one side; `nans` counts such pairs.
  std::optional<double> largest_difference;
  uint64_t largest_at = 0;
  uint64_t nans = 0;
};

struct CompareOptions {
  // Bounds the memory for bytes under way, whatever the size of the model; at least 64 MiB.
  uint64_t memory_bytes = uint64_t{1} << 30;
  int threads = 2;
  // Called now and then with the bytes of the first side that are compared so far, and their final number.
  std::function<void(uint64_t done, uint64_t total)> progress;
  // Called often; if it returns true the comparison ends.
  std::function<bool()> interrupted;
};

// Compares bits: two NaNs are the same if their bits are, and 0.0 and -0.0 differ. Returns the tensors, then the
// objects, each by name. Second names of tied weights count as names, unless both sides have the same one for the same
// target. Objects are compared by their canonical bytes (CanonicalObject); values of DCP directories are first encoded
// as Cairn would store them. Tensors of which both manifests have the same fingerprint are not read. Every block that
// is read is verified if its side has checksums. CANCELLED (INTERRUPTED). RESOURCE_EXHAUSTED (MEMORY_LIMIT). Else as
// ChooseTensors and TensorReader.
absl::StatusOr<std::vector<ComparedName>> CompareCheckpoints(const ComparedCheckpoint& first,
                                                             const ComparedCheckpoint& second,
                                                             const CompareOptions& options);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_COMPARE_COMPARISON_H_
