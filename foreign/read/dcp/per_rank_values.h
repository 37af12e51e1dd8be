// A file of an export for the values of which every rank has its own. It lies beside the files that PyTorch reads.
//
// torch.distributed.checkpoint has no such values. It gets them split into parts with names of their own
// ("rng.rank0.seed"). These names do not say which parts belong together, and some types of values are lost. This file
// has the values as the checkpoint had them, so that an import returns what was exported.
//
// Format: the length of the description as 8 bytes, little-endian; the description, which is JSON; the values' bytes,
// as python/cairn/_state/objects.py describes them. The description is
//   {"format": "cairn per-rank values 1", "metadata": DIGEST, "world_size": N,
//    "values": [{"name": "rng", "rank": 0, "offset": 4096, "bytes": 31}, ...], "stands_for": ["rng.rank0.seed", ...]}
// DIGEST is that of the `.metadata` beside the file, in hexadecimal digits. Offsets count from the begin of the file.
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
  std::vector<std::string> stands_for;  // the names in `.metadata` of the parts of the same values, sorted
};

// Returns the file's bytes. `contents` has the bytes of the values, in their order. PerRankValue::offset and bytes are
// ignored. `metadata_digest` is the Digest of the `.metadata`.
std::string RenderPerRankValues(const PerRankValues& values, const std::vector<std::string>& contents,
                                std::string_view metadata_digest);

// Reads the description (untrusted, without the file's first 8 bytes) of a file with a length of `file_bytes`; `what`
// names the file in errors. Nothing if the description belongs to another `.metadata`, because somebody has saved into
// the directory since. DATA_LOSS (BAD_FOREIGN_FILE): it is no such description, or contradicts itself. INVALID_ARGUMENT
// (BAD_NAME).
absl::StatusOr<std::optional<PerRankValues>> ParsePerRankValues(std::string_view description, uint64_t file_bytes,
                                                                std::string_view metadata_digest,
                                                                const std::string& what);

struct PerRankFile {
  ForeignFile file;
  PerRankValues values;
};
// Reads the file in a directory; nothing if there is none. Fails as ParsePerRankValues and ForeignFile do.
absl::StatusOr<std::optional<PerRankFile>> ReadPerRankFile(const std::string& directory,
                                                           std::string_view metadata_digest);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_DCP_PER_RANK_VALUES_H_
