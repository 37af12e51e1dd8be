// Writes a dataset of MosaicML's Streaming library (MDS, version 2) whose samples have one column, "tokens", byte for
// byte as its MDSWriter does.
//
// A directory has shards, shard.00000.mds .. Each is little-endian: a u32, the number of samples n; n + 1 u32, the
// offsets in the file at which samples begin, and the end of the last; the configuration in JSON; the samples. A sample
// has a u32, how many bytes follow, and the encoded array; if all arrays have one length, only the array. The file
// index.json says of each shard its name, size, number of samples and configuration. It is written last.
#ifndef CAIRN_CORPUS_INDEXED_MDS_WRITER_H_
#define CAIRN_CORPUS_INDEXED_MDS_WRITER_H_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "corpus/indexed/indexed_format.h"
#include "corpus/io/made_directory.h"

namespace cairn::corpus {

// A sample may have this many bytes.
inline constexpr uint64_t kMostMdsSampleBytes = uint64_t{1} << 30;

// Holds one shard in memory. Only one thread may use it at a time.
class MdsWriter {
 public:
  struct Options {
    std::string directory;  // on this machine or in an object store
    IndexedDtype dtype = IndexedDtype::kInt32;
    std::optional<uint64_t> tokens;            // of every sample; else they differ
    uint64_t shard_bytes = uint64_t{1} << 26;  // a shard has at most this many bytes, or one sample
  };

  // Makes the directory if it is missing. OUTPUT_EXISTS: it has an index.json. STORAGE_READ_ONLY, STORAGE_ERROR,
  // NO_SPACE.
  static absl::StatusOr<std::unique_ptr<MdsWriter>> Create(Options options);

  // Adds a sample of the tokens in `bytes`, at least one. UNSUPPORTED: it is above kMostMdsSampleBytes. Else as
  // OutputFile.
  absl::Status Add(std::string_view bytes);
  // Writes the last shard and the index. Fails as OutputFile.
  absl::Status Finish();

  uint64_t samples() const { return samples_; }
  uint64_t shards() const { return shards_; }

 private:
  explicit MdsWriter(Options options);
  absl::Status Flush();
  absl::Status Write(const std::string& name, std::initializer_list<std::string_view> pieces) const;

  const Options options_;
  MadeDirectory made_;
  const std::string description_;    // the entries of the configuration whose names come before "raw_data"
  const std::string configuration_;  // as it stands in each shard
  std::string data_;                 // the samples of the shard
  std::vector<uint32_t> ends_;       // where each of them ends in data_
  std::string index_;                // the entries of the shards that are written
  uint64_t samples_ = 0, shards_ = 0;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_INDEXED_MDS_WRITER_H_
