// The file in which an export keeps the values of which every rank has its own, beside what PyTorch reads of them.
//
// torch.distributed.checkpoint knows no such values. It gets them under names of their own ("rng.rank0.seed"), which do
// not say what belongs together, and without what Python's pickle cannot say in plain data. This file has them as the
// checkpoint had them, so an import gives what was exported.
//
// Format: the length of the description as 8 bytes, little-endian; the description, which is JSON; the values' bytes,
// as python/cairn/_state/objects.py describes them. The description is
//   {"format": "cairn per-rank values 1", "metadata": DIGEST, "world_size": N,
//    "values": [{"name": "rng", "rank": 0, "offset": 4096, "bytes": 31}, ...], "stands_for": ["rng.rank0.seed", ...]}
// in which DIGEST is that of the `.metadata` beside it, in hex digits, and an offset counts from where the file begins.
#ifndef CAIRN_FOREIGN_READ_DCP_PER_RANK_VALUES_H_
#define CAIRN_FOREIGN_READ_DCP_PER_RANK_VALUES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "foreign/read/source/foreign_file.h"

namespace cairn {

inline constexpr std::string_view kPerRankValuesName = ".cairn_per_rank_values";

struct PerRankValue {
  std::string name;
  int rank = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

struct PerRankValues {
  uint32_t world_size = 0;
  std::vector<PerRankValue> values;     // by name and rank
  std::vector<std::string> stands_for;  // names in `.metadata`, sorted: what PyTorch reads of the same values
};

// Returns the file's bytes. `contents` are those of the values, in their order; their offsets and lengths are not
// looked at. `metadata_digest` is the Digest of the `.metadata`.
std::string RenderPerRankValues(const PerRankValues& values, const std::vector<std::string>& contents,
                                std::string_view metadata_digest);

// Reads the description of such a file of `file_bytes`, which is untrusted, without its first 8 bytes; `what` names the
// file in errors. Nothing if it is of another `.metadata`: somebody has saved into the directory since. DATA_LOSS
// (BAD_FOREIGN_FILE): it is no such file, or contradicts itself. INVALID_ARGUMENT (BAD_NAME).
absl::StatusOr<std::optional<PerRankValues>> ParsePerRankValues(std::string_view description, uint64_t file_bytes,
                                                                std::string_view metadata_digest,
                                                                const std::string& what);

struct PerRankFile {
  ForeignFile file;
  PerRankValues values;
};
// Reads that of a directory; nothing if it has none. Fails as ParsePerRankValues and ForeignFile do.
absl::StatusOr<std::optional<PerRankFile>> ReadPerRankFile(const std::string& directory,
                                                           std::string_view metadata_digest);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_DCP_PER_RANK_VALUES_H_
