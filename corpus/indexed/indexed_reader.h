// Reads and checks a pair P.bin, P.idx with little memory, however many documents there are.
#ifndef CAIRN_CORPUS_INDEXED_INDEXED_READER_H_
#define CAIRN_CORPUS_INDEXED_INDEXED_READER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "corpus/indexed/indexed_format.h"
#include "corpus/io/ranged_input.h"

namespace cairn::corpus {

// Immutable after Open. Thread-safe, because it does not use the kernel's file offsets. The index is read in pieces and
// nothing is mapped, so a file that shrinks gives an error and no signal.
class IndexedReader {
 public:
  // Reads the header and compares the sizes of both files with it. The size also tells whether there are modes.
  // INPUT_UNREADABLE: a file is missing, cannot be read or is no regular file. INDEX_CORRUPT: it is no such index, its
  // dtype or version is unknown, or its size does not fit the counts; the message names file and numbers. Of objects
  // also the errors of ObjectStores.
  static absl::StatusOr<std::unique_ptr<IndexedReader>> Open(const std::string& prefix);
  IndexedReader(const IndexedReader&) = delete;
  IndexedReader& operator=(const IndexedReader&) = delete;

  const IndexHeader& header() const { return header_; }
  bool multimodal() const { return multimodal_; }
  uint64_t documents() const { return header_.document_indices - 1; }
  uint64_t bin_bytes() const { return bin_.bytes(); }
  uint64_t tokens() const { return bin_.bytes() / IndexedDtypeBytes(header_.dtype); }
  const std::string& prefix() const { return prefix_; }
  // -1: it is an object.
  int bin_fd() const { return bin_.fd(); }

  // Passes each part of the index to the visitor in order, in pieces of up to some 100,000 numbers, of objects a
  // million. Fails as the visitor; INPUT_UNREADABLE.
  template <typename T>
  using Visitor = absl::FunctionRef<absl::Status(const T* values, size_t count)>;
  absl::Status VisitLengths(Visitor<int32_t> visitor) const;
  absl::Status VisitLengthsAndPointers(
      absl::FunctionRef<absl::Status(const int32_t* lengths, const int64_t* pointers, size_t count)> visitor) const;
  absl::Status VisitPointers(Visitor<int64_t> visitor) const;
  absl::Status VisitDocuments(Visitor<int64_t> visitor) const;
  absl::Status VisitModes(Visitor<int8_t> visitor) const;

 private:
  IndexedReader(std::string prefix, RangedInput idx, RangedInput bin);
  absl::Status ReadIndex(uint64_t offset, void* to, size_t size) const;
  template <typename T>
  absl::Status Visit(uint64_t offset, uint64_t count, Visitor<T> visitor) const;

  const std::string prefix_;
  const RangedInput idx_;
  const RangedInput bin_;
  IndexHeader header_{};
  bool multimodal_ = false;
};

struct IndexedStatistics {
  uint64_t empty_documents = 0;
  uint64_t empty_sequences = 0;
  uint64_t longest_sequence = 0;  // in tokens
  uint64_t shortest_sequence = 0;
};

// Checks every number of the index: no length is negative, each pointer is the sum of the lengths before it, document
// indices ascend from 0 to the number of sequences, and the last sequence ends where .bin ends. So it finds every
// truncation, and every flipped bit of header, lengths, pointers and last document index. It does not find a changed
// mode or token, or a changed inner document index that still ascends, because the format has no checksum. With
// `read_bin` it also reads every byte of .bin, which finds a disk that cannot. INDEX_CORRUPT: has all kinds of faults
// that were found, with their positions. INPUT_UNREADABLE.
absl::StatusOr<IndexedStatistics> VerifyIndexed(const IndexedReader& reader, bool read_bin);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_INDEXED_INDEXED_READER_H_
