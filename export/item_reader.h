// Reads parts of stored shards, block by block, and checks each block.
#ifndef CAIRN_EXPORT_ITEM_READER_H_
#define CAIRN_EXPORT_ITEM_READER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/file/posix.h"
#include "common/format/manifest.h"
#include "common/format/safetensors_header.h"

namespace cairn {

// Reads items of files. From the first read of a file on, it keeps the file open and its block checksums (4 bytes for
// each MiB). Thread-safe.
class ItemReader {
 public:
  // Both must outlive it. `storage` may be null if all files are imported ones.
  ItemReader(PosixStorage* storage, const Manifest& manifest) : storage_(storage), manifest_(manifest) {}

  // Reads [begin, begin + bytes) of a shard to `to`. `begin` must be a multiple of kChecksumBlockBytes, and so must the
  // end unless it is the shard's end. An imported file has no checksums; only its length is checked. DATA_LOSS
  // (FILE_MISSING, FILE_TRUNCATED, BAD_SAFETENSORS, CHECKSUM_MISMATCH): names file, offset and tensor. UNAVAILABLE
  // (STORAGE_ERROR).
  absl::Status Read(const ManifestShard& shard, uint64_t begin, uint64_t bytes, std::byte* to);

  // Reads an object's true bytes. Fails as the other Read does.
  absl::StatusOr<std::string> Read(const ManifestObject& object);

 private:
  struct File {
    std::string path;
    bool imported = false;
    UniqueFd fd;
    std::vector<std::vector<uint32_t>> blocks;  // by item
  };
  absl::StatusOr<const File*> Open(uint32_t number);
  absl::Status ReadHeader(const ManifestFile& file, File& opened);
  // Reads blocks of an item of `item_bytes` bytes that begins at `item_offset` of its file.
  absl::Status ReadBlocks(const File& file, const std::string& name, uint32_t item, uint64_t item_offset,
                          uint64_t item_bytes, uint64_t begin, uint64_t bytes, std::byte* to);

  PosixStorage* storage_;
  const Manifest& manifest_;
  Mutex mutex_;
  std::map<uint32_t, std::unique_ptr<File>> files_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_EXPORT_ITEM_READER_H_
