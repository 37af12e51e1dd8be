// Manifests for tests of plans, which look at names, dtypes and shapes alone.
#ifndef CAIRN_FOREIGN_WRITE_TESTING_MANIFEST_OF_H_
#define CAIRN_FOREIGN_WRITE_TESTING_MANIFEST_OF_H_

#include <string>
#include <tuple>
#include <vector>

#include "common/format/manifest.h"

namespace cairn::testing {

// Each tensor has one shard, which is whole.
inline Manifest ManifestOf(const std::vector<std::tuple<std::string, DType, Shape>>& tensors) {
  Manifest manifest;
  for (const auto& [name, dtype, shape] : tensors) {
    ManifestTensor& tensor = manifest.tensors.emplace_back();
    tensor.name = name;
    tensor.dtype = dtype;
    tensor.global_shape = shape;
    tensor.first_shard = static_cast<uint32_t>(manifest.shards.size());
    tensor.shard_count = 1;
    ManifestShard& shard = manifest.shards.emplace_back();
    shard.tensor = static_cast<uint32_t>(manifest.tensors.size() - 1);
    shard.dims = static_cast<uint32_t>(manifest.dims.size());
    manifest.dims.insert(manifest.dims.end(), shape.size(), 0);
    manifest.dims.insert(manifest.dims.end(), shape.begin(), shape.end());
  }
  return manifest;
}

}  // namespace cairn::testing

#endif  // CAIRN_FOREIGN_WRITE_TESTING_MANIFEST_OF_H_
