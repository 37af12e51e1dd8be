// Reads a directory that torch.distributed.checkpoint wrote, as if it were a checkpoint.
#ifndef CAIRN_FOREIGN_READ_DCP_DCP_DIRECTORY_H_
#define CAIRN_FOREIGN_READ_DCP_DCP_DIRECTORY_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/format/manifest.h"

namespace cairn {

inline constexpr std::string_view kDcpMetadataName = ".metadata";
// Megatron-core ("torch_dist") writes these two files beside those of DCP. The first one names the format. The second
// one is a file of torch.save with the values that are no tensors and the same on all ranks.
inline constexpr std::string_view kMegatronMarkerName = "metadata.json";
inline constexpr std::string_view kMegatronCommonName = "common.pt";

// Reads `.metadata` and, in each `.distcp` file that it names, the descriptions of the tensors. Each chunk of a tensor
// becomes a shard, or several if its elements do not lie row-major. A value that is no tensor becomes an object whose
// bytes are what torch.save wrote; foreign/read/torch/torch_value.h reads them. A directory of Megatron-core has one
// more object, named kMegatronCommonName. The files have no checksums. Everything in them is untrusted, and `directory`
// is a resolved path (ResolvePath). DATA_LOSS (FILE_MISSING, FILE_TRUNCATED, BAD_FOREIGN_FILE): names file
// and tensor. INVALID_ARGUMENT (PATH_ESCAPE): a name or a link leads out of the directory. UNIMPLEMENTED (UNSUPPORTED):
// a dtype, a compression or a way to store a tensor that Cairn does not know. RESOURCE_EXHAUSTED (MEMORY_LIMIT),
// UNAVAILABLE (STORAGE_ERROR).
absl::StatusOr<Manifest> ReadDcpDirectory(const std::string& directory);

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_DCP_DCP_DIRECTORY_H_
