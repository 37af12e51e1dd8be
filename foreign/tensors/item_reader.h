// Reads parts of stored shards, block by block, and checks each block.
#ifndef CAIRN_FOREIGN_TENSORS_ITEM_READER_H_
#define CAIRN_FOREIGN_TENSORS_ITEM_READER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/format/manifest.h"
#include "common/format/safetensors_header.h"
#include "store/storage/storage.h"
#include "store/storage/stored_file.h"

namespace cairn {

// Reads items of files. Bytes that the page cache has come from there, the others are read past it. After the first
// read of a file it keeps the file open and its block checksums in memory (4 bytes for each MiB). Thread-safe.
class ItemReader {
 public:
  // Returns the size of the scratch memory for a read of `bytes`; both in bytes. Scratch memory must be aligned to
  // kIoAlignment. A read past the page cache needs it, because such a read takes whole blocks into aligned memory.
  static constexpr uint64_t ScratchBytes(uint64_t bytes) { return bytes + 2 * kReadAlignment; }

  // Both must outlive it. `storage` may be null if all files are imported ones.
  ItemReader(Storage* storage, const Manifest& manifest) : storage_(storage), manifest_(manifest) {}

  // Reads [begin, begin + bytes) of a shard to `to`. `begin` must be a multiple of kChecksumBlockBytes, and so must the
  // end unless it is the shard's end. An imported file has no checksums; only its length is checked. DATA_LOSS
  // (FILE_MISSING, FILE_TRUNCATED, BAD_SAFETENSORS, CHECKSUM_MISMATCH): names file, offset and tensor. UNAVAILABLE
  // (STORAGE_ERROR).
  absl::Status Read(const ManifestShard& shard, uint64_t begin, uint64_t bytes, std::byte* to, std::byte* scratch);
  // Reads the same bytes into `scratch`, and returns the address at which they begin. Fails as Read.
  absl::StatusOr<const std::byte*> ReadInto(const ManifestShard& shard, uint64_t begin, uint64_t bytes,
                                            std::byte* scratch);

  // Reads an object's bytes, without the padding behind them. Fails as the other Read does.
  absl::StatusOr<std::string> Read(const ManifestObject& object);

 private:
  struct File {
    std::string path;  // for messages
    bool imported = false;
    std::unique_ptr<StoredFile> reader;
    std::vector<std::vector<uint32_t>> blocks;  // by item
  };
  struct Part {
    const std::string& name;  // of the tensor or object
    uint32_t item = 0;
    uint64_t item_offset = 0;  // in its file
    uint64_t item_bytes = 0;
    uint64_t begin = 0;
    uint64_t bytes = 0;

    uint64_t offset() const { return item_offset + begin; }
  };
  absl::StatusOr<File*> Open(uint32_t number);
  absl::StatusOr<std::unique_ptr<StoredFile>> OpenReader(const ManifestFile& file);
  absl::Status ReadHeader(const ManifestFile& file, File& opened);
  Part PartOf(const ManifestShard& shard, uint64_t begin, uint64_t bytes) const;
  // Reads a part to `to`. If `copied` is not null, each block is copied there as soon as it is verified.
  absl::Status ReadPart(File& file, const Part& part, StoredFile::Way way, std::byte* to, bool in_place,
                        std::byte* copied);
  // Compares the checksum of a block of an item, at `at` of the part.
  absl::Status Verify(const File& file, const Part& part, uint64_t at, const std::byte* bytes, uint64_t size) const;

  Storage* storage_;
  const Manifest& manifest_;
  Mutex mutex_;
  std::map<uint32_t, std::unique_ptr<File>> files_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_FOREIGN_TENSORS_ITEM_READER_H_
