// Plans what an export writes: whole tensors, the files that hold them, and the parts of the checkpoint that they are
// made of.
#ifndef CAIRN_EXPORT_EXPORT_PLAN_H_
#define CAIRN_EXPORT_EXPORT_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/format/manifest.h"
#include "common/format/plain_header.h"
#include "export/model_files.h"
#include "export/whole_tensors.h"

namespace cairn {

struct ExportOptions {
  TensorChoice choice;
  // The most bytes of tensors in one file; a larger tensor gets a file of its own.
  uint64_t max_shard_bytes = 5'000'000'000;
};

struct ExportFile {
  std::string name;  // "model-00001-of-00002.safetensors"
  std::string header;
  uint64_t data_bytes = 0;
  std::vector<uint32_t> tensors;  // in the order of the file
};

struct ExportPlan {
  std::vector<WholeTensor> tensors;
  std::vector<ExportFile> files;
  std::string index;                   // the bytes of model.safetensors.index.json
  std::vector<ModelFile> model_files;  // to be copied; whoever wants some adds them to the plan
  uint64_t total_bytes = 0;            // those of the tensors
};

// Makes the plan from its arguments alone. Tensors are dealt out in the natural order of their names ("layers.2" before
// "layers.10"), so a file holds neighbouring layers. INVALID_ARGUMENT (BAD_REQUEST): nothing is left to export.
// UNIMPLEMENTED (UNSUPPORTED): safetensors has no name for a dtype. Also fails as ChooseTensors does.
absl::StatusOr<ExportPlan> MakeExportPlan(const Manifest& manifest, const ExportOptions& options);

// Compares numbers within names by their value: "a2" < "a10".
bool NaturallyLess(std::string_view a, std::string_view b);

}  // namespace cairn

#endif  // CAIRN_EXPORT_EXPORT_PLAN_H_
