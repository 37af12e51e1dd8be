// Plans a directory that torch.distributed.checkpoint reads: chunks of tensors, values, files, and the metadata.
//
// Format: torch/distributed/checkpoint/metadata.py and filesystem.py of PyTorch 2.4 to 2.13.
#ifndef CAIRN_FOREIGN_WRITE_DCP_DCP_PLAN_H_
#define CAIRN_FOREIGN_WRITE_DCP_DCP_PLAN_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/format/manifest.h"
#include "common/tensor/box.h"
#include "foreign/tensors/whole_tensors.h"
#include "foreign/write/export_plan.h"
#include "foreign/write/torch/exported_values.h"

namespace cairn {

// The most bytes of a chunk. PyTorch reads chunks whole, so small chunks let a rank that needs a part of a tensor read
// little more than that part. A chunk of this size also fits the memory of any export.
inline constexpr uint64_t kDcpChunkBytes = uint64_t{8} << 20;

// An entry of a file, in the form that torch.save writes: a chunk of a tensor, or a value.
struct DcpExportEntry {
  static constexpr uint32_t kNoTensor = UINT32_MAX;
  uint32_t tensor = kNoTensor;  // index into DcpExportPlan::tensors
  Box box;                      // of the chunk; its elements follow one another in the row-major tensor
  int64_t begin = 0;            // row-major index of the chunk's first element
  std::string value;            // all bytes of the entry, if it is no chunk
  uint64_t offset = 0;          // in the file
  uint64_t bytes = 0;
};

struct DcpExportFile {
  std::string name;  // "__0_0.distcp"
  uint64_t bytes = 0;
  std::vector<DcpExportEntry> entries;  // by offset
};

struct DcpExportPlan {
  // Small files beside those of torch.distributed.checkpoint: name and bytes.
  std::vector<std::pair<std::string, std::string>> beside;
  std::vector<WholeTensor> tensors;  // by name
  // Tied weights have further names, each here with the index of its tensor.
  std::vector<std::pair<std::string, uint32_t>> second_names;
  std::vector<DcpExportFile> files;
  std::string metadata;      // the bytes of `.metadata`
  size_t values = 0;         // how many entries are no chunks
  uint64_t total_bytes = 0;  // bytes of all tensors
};

// Makes the plan from its arguments alone. A second name of a tied weight refers to the chunks of the first name, so
// the elements are written once. INVALID_ARGUMENT (BAD_REQUEST): nothing is left to export; (NAME_COLLISION): a tensor,
// a second name or a value has the name of another one. UNIMPLEMENTED (UNSUPPORTED): a value takes 2 GiB or more. Else
// as ChooseTensors.
absl::StatusOr<DcpExportPlan> MakeDcpExportPlan(const Manifest& manifest, const ExportOptions& options,
                                                const std::vector<ExportedValue>& values);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_WRITE_DCP_DCP_PLAN_H_
