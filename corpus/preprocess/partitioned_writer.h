// Writes one key's documents to P_KEY_LEVEL.bin and .idx, in Megatron-LM's order of partitions.
#ifndef CAIRN_CORPUS_PREPROCESS_PARTITIONED_WRITER_H_
#define CAIRN_CORPUS_PREPROCESS_PARTITIONED_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "corpus/indexed/indexed_writer.h"
#include "corpus/preprocess/document_encoder.h"

namespace cairn::corpus {

// With n partitions, document i belongs to partition i mod n, and the output has the documents of partition 0, then
// those of 1, and so on. Add writes the documents of partition 0 into the output; the others wait in nameless files
// where those of IndexedWriter do, until Finish. Not thread-safe. Fails as IndexedWriter.
class PartitionedWriter {
 public:
  static absl::StatusOr<std::unique_ptr<PartitionedWriter>> Create(const std::string& prefix,
                                                                   IndexedWriter::Options options, int partitions);

  // `first` counts all documents that came before.
  absl::Status Add(uint64_t first, const EncodedDocuments& documents);
  // If it succeeds, both files have their names; else neither has.
  absl::Status Finish();

  const IndexedWriter& writer() const { return *writer_; }

 private:
  PartitionedWriter(std::unique_ptr<IndexedWriter> writer, bool multimodal, int partitions)
      : writer_(std::move(writer)), multimodal_(multimodal), partitions_(static_cast<uint64_t>(partitions)) {}

  absl::Status Replay(Spool& spool);

  std::unique_ptr<IndexedWriter> writer_;
  const bool multimodal_;
  const uint64_t partitions_;
  std::vector<Spool> waiting_;  // those of partitions 1, 2 ..: records of counts, lengths, modes, ids
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_PREPROCESS_PARTITIONED_WRITER_H_
