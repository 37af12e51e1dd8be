// Writes the tokens of a pair P.bin, P.idx as a dataset of MosaicML's Streaming library (mds_writer.h).
#ifndef CAIRN_CORPUS_INDEXED_MDS_EXPORT_H_
#define CAIRN_CORPUS_INDEXED_MDS_EXPORT_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace cairn::corpus {

struct MdsExportOptions {
  std::string prefix;                       // P
  std::string directory;                    // of the new dataset
  std::optional<uint64_t> sequence_length;  // in tokens, at least 1
  const std::atomic<bool>* stop = nullptr;  // ends the export with INTERRUPTED; may be null
  // Counts the bytes of P.bin as they are read; may be null.
  std::atomic<uint64_t>* bytes_done = nullptr;
};

struct MdsReport {
  std::string dtype;
  uint64_t samples = 0, shards = 0, tokens = 0;
  uint64_t empty_documents = 0;  // left out, because MDS has no array without elements
  uint64_t tokens_left = 0;      // too few for one more sample
};

// Makes one sample of each document that has tokens. With `sequence_length`, all tokens in a row are cut into samples
// of so many, whatever the documents are, and too few at the end are left out. It holds one shard in memory, 64 MiB, or
// one document that is longer. The index is written last, so what an error or a kill leaves is no dataset; the same
// call replaces it. BAD_REQUEST: a sample would have more than 1 GiB. UNSUPPORTED: a document has; or the pair is
// multimodal. INDEX_CORRUPT, INPUT_UNREADABLE: the pair is damaged. Else as MdsWriter, and INTERRUPTED.
absl::StatusOr<MdsReport> ExportMds(const MdsExportOptions& options);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_INDEXED_MDS_EXPORT_H_
