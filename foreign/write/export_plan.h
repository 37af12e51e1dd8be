// Plans an export: the whole tensors, the stored tensors from which each is made, and the files that will hold them.
#ifndef CAIRN_FOREIGN_WRITE_EXPORT_PLAN_H_
#define CAIRN_FOREIGN_WRITE_EXPORT_PLAN_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/format/manifest.h"
#include "foreign/read/source/plain_header.h"
#include "foreign/tensors/whole_tensors.h"
#include "foreign/write/model_files.h"

namespace cairn {

struct ExportOptions {
  TensorChoice choice;
  // The most bytes of tensors in one file; a larger tensor gets a file of its own.
  uint64_t max_shard_bytes = 5'000'000'000;
};

// A tensor that stands in a file, row-major.
struct ExportPiece {
  std::string before;   // the bytes between the tensor before it, or the begin of the file, and this one
  uint32_t tensor = 0;  // index into ExportPlan::tensors
};

struct ExportFile {
  std::string name;                 // "model-00001-of-00002.safetensors"
  std::vector<ExportPiece> pieces;  // in the order of the file
  std::string after;                // the bytes behind the last tensor
  uint64_t data_bytes = 0;          // of the tensors

  // Returns how long the file is.
  uint64_t bytes() const;
};

struct ExportPlan {
  std::vector<WholeTensor> tensors;
  std::vector<ExportFile> files;
  std::string index_name;              // the file that is written last: "model.safetensors.index.json"
  std::string index;                   // its bytes
  std::vector<ModelFile> model_files;  // files to be copied; the caller adds them to the plan
  uint64_t total_bytes = 0;            // bytes of all tensors
};

// What the files of an export can hold.
struct ExportFormat {
  std::string_view library;  // the library that reads the files, for errors
  std::function<bool(DType, const Shape&)> knows;
  // Says whether tensors of this dtype go into files of their own.
  std::function<bool(DType)> apart;
};

// Chooses the tensors and distributes them over files in the natural order of their names ("layers.2" before
// "layers.10"), so that a file holds neighbouring layers. Files of tensors for which `apart` returns true come last.
// The files have no names yet, and nothing stands between their tensors. INVALID_ARGUMENT (BAD_REQUEST): nothing is
// left to export. UNIMPLEMENTED (UNSUPPORTED): the format does not know a tensor's dtype. Also fails as ChooseTensors
// does.
absl::StatusOr<ExportPlan> DealOut(const Manifest& manifest, const ExportOptions& options, const ExportFormat& format);

// Plans safetensors files and their index, from its arguments alone. Tensors with a dtype that earlier releases of
// safetensors refuse go into files of their own, so that those releases can read the other files. Fails as DealOut.
absl::StatusOr<ExportPlan> MakeExportPlan(const Manifest& manifest, const ExportOptions& options);

// Compares numbers within names by their value: "a2" < "a10".
bool NaturallyLess(std::string_view a, std::string_view b);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_WRITE_EXPORT_PLAN_H_
