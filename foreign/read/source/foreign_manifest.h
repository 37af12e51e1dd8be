// Builds the manifest of another program's checkpoint, piece by piece.
#ifndef CAIRN_FOREIGN_READ_SOURCE_FOREIGN_MANIFEST_H_
#define CAIRN_FOREIGN_READ_SOURCE_FOREIGN_MANIFEST_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/digest.h"
#include "common/format/manifest.h"
#include "common/tensor/box.h"
#include "common/tensor/dtype.h"
#include "foreign/read/source/foreign_file.h"

namespace cairn {

class ForeignManifest {
 public:
  // `kind` tells sources of different formats apart in the digest.
  explicit ForeignManifest(std::string_view kind) { digester_.Add(kind); }

  uint32_t AddFile(const ForeignFile& file);
  // Adds the digest of a metadata file to the digest that identifies the checkpoint.
  void AddDigest(std::string_view digest) { digester_.Add(digest); }
  // Returns the tensor's number. Tensors come in the order of their names.
  uint32_t AddTensor(std::string name, DType dtype, Shape global_shape);
  // Adds a box of a tensor, whose elements lie row-major from `offset` of the file on. Empty boxes are left out.
  void AddPiece(uint32_t tensor, std::span<const int64_t> offset, std::span<const int64_t> shape, uint32_t file,
                uint64_t file_offset);
  // Adds a value that is no tensor. Its bytes in the file are what torch.save wrote for it. Values come in the order of
  // their names.
  void AddValue(std::string name, uint32_t file, uint64_t file_offset, uint64_t bytes);
  // Adds a value of which each of `world_size` ranks has its own. Those of one name come in the order of their ranks.
  void AddValueOfRank(std::string name, int rank, uint32_t world_size, uint32_t file, uint64_t file_offset,
                      uint64_t bytes);
  void AddAlias(std::string name, std::string target);

  // From now on several pieces may lie at the same bytes, because tensors may be views of them. Without this call it is
  // an error.
  void AllowSharedBytes() { shares_bytes_ = true; }

  // Returns the checkpoint. DATA_LOSS (FILE_TRUNCATED): a piece or value ends behind the end of its file. DATA_LOSS
  // (BAD_FOREIGN_FILE): two pieces or values share bytes of a file and must not. UNIMPLEMENTED (UNSUPPORTED): the
  // pieces in a file take far more bytes than it has.
  absl::StatusOr<Manifest> Finish() &&;

 private:
  std::string NameOf(uint32_t item) const;
  absl::Status TooMuchShared(const ManifestFile& file, uint32_t item) const;

  Manifest manifest_;
  bool shares_bytes_ = false;
  Digester digester_;
};

}  // namespace cairn

#endif  // CAIRN_FOREIGN_READ_SOURCE_FOREIGN_MANIFEST_H_
