// Reads the `.metadata` of a directory that torch.distributed.checkpoint wrote.
//
// Format: torch/distributed/checkpoint/metadata.py and filesystem.py of PyTorch 2.4 to 2.13.
#ifndef CAIRN_FOREIGN_READ_DCP_DCP_METADATA_H_
#define CAIRN_FOREIGN_READ_DCP_DCP_METADATA_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tensor/box.h"
#include "common/tensor/dtype.h"
#include "foreign/read/pickle/pickle.h"

namespace cairn {

struct DcpTensor {
  std::string name;
  DType dtype = DType::kUnspecified;
  Shape global_shape;
};

// Describes what one call of torch.save wrote: a chunk of a tensor, or a value that is no tensor.
struct DcpEntry {
  static constexpr uint32_t kNoTensor = UINT32_MAX;
  uint32_t tensor = kNoTensor;  // index into DcpMetadata::tensors
  uint32_t value = 0;           // index into DcpMetadata::values, if it belongs to no tensor
  uint32_t file = 0;            // index into DcpMetadata::files
  uint64_t offset = 0;          // in the file
  uint64_t bytes = 0;
  uint64_t dims = 0;  // in DcpMetadata::dims: the chunk's offsets, then its sizes
};

struct DcpMetadata {
  std::vector<DcpTensor> tensors;   // by name
  std::vector<std::string> values;  // names of values that are no tensors, sorted
  std::vector<std::string> files;   // paths below the directory: no "..", no empty part
  std::vector<DcpEntry> entries;    // by file and offset; they do not overlap
  std::vector<int64_t> dims;
  // (second name, first name) of tensors whose chunks are all the same bytes, sorted. Second names are not in
  // `tensors`.
  std::vector<std::pair<std::string, std::string>> aliases;

  std::span<const int64_t> offset_of(const DcpEntry& entry) const {
    return {dims.data() + entry.dims, tensors[entry.tensor].global_shape.size()};
  }
  std::span<const int64_t> shape_of(const DcpEntry& entry) const {
    const size_t ndim = tensors[entry.tensor].global_shape.size();
    return {dims.data() + entry.dims + ndim, ndim};
  }
};

// Reads a `.metadata`, which is untrusted; `what` names it in errors. The chunks of each tensor tile it exactly. Time
// and memory are linear in its length. DATA_LOSS (BAD_FOREIGN_FILE): it is not a `.metadata`, it contradicts itself, or
// a chunk is missing or occurs twice. INVALID_ARGUMENT (PATH_ESCAPE): a file's name leaves the directory. UNIMPLEMENTED
// (UNSUPPORTED): its entries are compressed, or it has a dtype that Cairn does not know. Also fails as ReadPickle does.
// If `release` is given, it is told which bytes are not needed any more: see ConsumePickle.
absl::StatusOr<DcpMetadata> ReadDcpMetadata(std::string_view bytes, const std::string& what,
                                            const ReleasePickle& release = {});

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_DCP_DCP_METADATA_H_
