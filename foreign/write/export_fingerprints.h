// The fingerprints of the tensors of an export (common/tensor/fingerprint.h), which stand in a file beside them.
#ifndef CAIRN_FOREIGN_WRITE_EXPORT_FINGERPRINTS_H_
#define CAIRN_FOREIGN_WRITE_EXPORT_FINGERPRINTS_H_

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/format/manifest.h"
#include "foreign/tensors/tensor_reader.h"
#include "foreign/tensors/whole_tensors.h"

namespace cairn {

// The file's name. docs/export.md describes it.
inline constexpr char kFingerprintsName[] = "cairn_fingerprints.json";

// A tensor that is a stored one under any name has the manifest's fingerprint. That of others comes from the bytes that
// are written. Not thread-safe.
class ExportFingerprints {
 public:
  // `tensors` must outlive it.
  ExportFingerprints(const Manifest& manifest, std::span<const WholeTensor> tensors);

  // Takes the bytes of parts of these tensors, which stand in the window. Each element may come once. It works on up to
  // `threads` threads. RESOURCE_EXHAUSTED (MEMORY_LIMIT).
  absl::Status Add(std::span<const TensorPart> parts, const char* window, int threads);
  // Returns the parts of which no bytes have come, in pieces of at most `most_bytes` bytes, or one element. Their `at`
  // is 0.
  std::vector<TensorPart> Missing(uint64_t most_bytes) const;

  // Returns the file: an object with the fingerprint of each tensor by its names. All bytes must have come.
  // `second_names`: further names in the export, each with the index of its tensor.
  std::string Text(std::span<const std::pair<std::string, uint32_t>> second_names = {}) const;

 private:
  struct Entry {
    uint64_t parts = 0;
    bool known = false;
    std::vector<std::pair<int64_t, int64_t>> come;  // elements [begin, end)
  };

  std::span<const WholeTensor> tensors_;
  std::vector<Entry> entries_;  // one for each tensor
};

}  // namespace cairn

#endif  // CAIRN_FOREIGN_WRITE_EXPORT_FINGERPRINTS_H_
