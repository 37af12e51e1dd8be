// What an export writes: whole tensors, in which files, made of which parts of the checkpoint.
#ifndef CAIRN_EXPORT_EXPORT_PLAN_H_
#define CAIRN_EXPORT_EXPORT_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/format/manifest.h"
#include "common/format/plain_header.h"
#include "mapping/mapping.h"
#include "planner/load/axis_map.h"

namespace cairn {

struct ExportOptions {
  // None: every tensor under its own name. Its outputs are what the statements leave over.
  std::optional<aoa::Config> mapping;
  // Shell patterns (fnmatch) of stored names; empty: all. A mapping sees only what is left.
  std::vector<std::string> include;
  std::vector<std::string> exclude;
  // Largest file, of tensors' bytes; a larger tensor gets a file of its own.
  uint64_t max_shard_bytes = 5'000'000'000;
};

struct ExportTensor {
  PlainTensor plain;  // begin and end count from the begin of its file's data
  std::vector<AxisMap> links;
};

struct ExportFile {
  std::string name;  // "model-00001-of-00002.safetensors"
  std::string header;
  uint64_t data_bytes = 0;
  std::vector<uint32_t> tensors;  // in the order of the file
};

struct ExportPlan {
  std::vector<ExportTensor> tensors;
  std::vector<ExportFile> files;
  std::string index;         // the bytes of model.safetensors.index.json
  uint64_t total_bytes = 0;  // of tensors
};

// Pure. Second names of tied weights are not written twice, unless a statement gives them. Tensors are dealt out in the
// natural order of their names ("layers.2" before "layers.10"), so files hold neighbouring layers.
// INVALID_ARGUMENT: the mapping's faults; MAPPING_DTYPE: an output whose parts arrive in different dtypes; BAD_REQUEST:
// nothing is left to export. UNIMPLEMENTED (UNSUPPORTED): dtypes that safetensors has no name for.
absl::StatusOr<ExportPlan> MakeExportPlan(const Manifest& manifest, const ExportOptions& options);

// "a2" < "a10".
bool NaturallyLess(std::string_view a, std::string_view b);

}  // namespace cairn

#endif  // CAIRN_EXPORT_EXPORT_PLAN_H_
