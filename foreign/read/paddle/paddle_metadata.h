// Reads the `<number>.metadata` of a directory that Paddle's FlexCheckpoint wrote (paddle.distributed.save_state_dict).
//
// Format: paddle/distributed/flex_checkpoint/dcp/metadata.py and save_state_dict.py of Paddle 3.
#ifndef CAIRN_FOREIGN_READ_PADDLE_PADDLE_METADATA_H_
#define CAIRN_FOREIGN_READ_PADDLE_PADDLE_METADATA_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tensor/box.h"
#include "common/tensor/dtype.h"
#include "common/tensor/flat_range.h"
#include "foreign/read/pickle/pickle.h"

namespace cairn {

struct PaddleTensor {
  std::string name;
  DType dtype = DType::kUnspecified;
  Shape global_shape;
};

// A part of a tensor: the array with the tensor's name in one file.
struct PaddleShard {
  uint32_t tensor = 0;  // index into PaddleMetadata::tensors
  uint32_t file = 0;    // index into PaddleMetadata::files
  uint64_t dims = 0;    // in PaddleMetadata::dims: the offsets of a box of the tensor, then its sizes
  // If set, the shard has only these elements of the box.
  std::optional<FlatRange> flat;
};

struct PaddleMetadata {
  std::vector<PaddleTensor> tensors;  // by name
  std::vector<std::string> files;     // paths below the directory: no "..", no empty part
  std::vector<PaddleShard> shards;    // by file
  std::vector<int64_t> dims;

  Box box_of(const PaddleShard& shard) const {
    const size_t ndim = tensors[shard.tensor].global_shape.size();
    const int64_t* at = dims.data() + shard.dims;
    return {{at, at + ndim}, {at + ndim, at + 2 * ndim}};
  }
};

// Reads a metadata file, which is untrusted; `what` names it in errors. The shards of each tensor make it up exactly.
// Time and memory are linear in its length. DATA_LOSS (BAD_FOREIGN_FILE): it is not such a file, it contradicts itself,
// or a shard is missing. INVALID_ARGUMENT (PATH_ESCAPE): a file's name leaves the directory; (BAD_NAME): a tensor's
// name is not allowed. UNIMPLEMENTED (UNSUPPORTED): it has a dtype that Cairn does not know. Also fails as ReadPickle
// does. If `release` is given, it is told which bytes are not needed any more: see ConsumePickle.
absl::StatusOr<PaddleMetadata> ReadPaddleMetadata(std::string_view bytes, const std::string& what,
                                                  const ReleasePickle& release = {});

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_PADDLE_PADDLE_METADATA_H_
