// Writes a pair P.bin, P.idx, byte for byte as Megatron's IndexedDatasetBuilder, with memory that does not grow with
// the number of documents: lengths and document indices wait in nameless files until the end, beside the output or, if
// that is in an object store, where ScratchDirectoryFor says.
#ifndef CAIRN_CORPUS_INDEXED_INDEXED_WRITER_H_
#define CAIRN_CORPUS_INDEXED_INDEXED_WRITER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "corpus/indexed/indexed_format.h"
#include "corpus/indexed/spool.h"
#include "corpus/io/made_directory.h"
#include "corpus/io/output_file.h"

namespace cairn::corpus {

// Only one thread may use it at a time. Documents must come in the order of the dataset. Neither file gets its name
// before Finish has succeeded; without Finish, nothing is left. After an error, drop the writer. It takes about 5 MiB
// of memory; for an object store 40 MiB and more (object_output.h).
class IndexedWriter {
 public:
  struct Options {
    IndexedDtype dtype = IndexedDtype::kUint16;
    bool multimodal = false;  // writes one mode for each sequence behind the document indices
  };

  // NO_SPACE, STORAGE_READ_ONLY, STORAGE_ERROR: the files cannot be made (for example, the directory cannot be made).
  static absl::StatusOr<std::unique_ptr<IndexedWriter>> Create(const std::string& prefix, Options options);

  // Adds one document. `tokens` are those of all its sequences one after the other, `lengths` the length of each
  // sequence in tokens (their sum is tokens.size()), `modes` one per sequence in multimodal datasets, else empty. A
  // document without sequences is kept as an empty one, and so is a sequence of length 0 (Megatron's tool drops those
  // before it writes). The dtype must be an integer's. BAD_REQUEST: lengths and tokens disagree, or a token does not
  // fit the dtype; nothing was added. Else the errors of storage, as above.
  absl::Status AddDocument(std::span<const uint32_t> tokens, std::span<const int32_t> lengths,
                           std::span<const int8_t> modes = {});

  // Does the same with the tokens as they lie in .bin, for every dtype.
  absl::Status AddRawDocument(std::string_view tokens, std::span<const int32_t> lengths,
                              std::span<const int8_t> modes = {});

  // Writes the index, syncs both files and gives them their names, .idx last. They replace a pair that stood there,
  // whose .idx goes first: what a kill leaves has no .idx, and IndexedReader refuses it.
  absl::Status Finish();

  uint64_t documents() const { return documents_; }
  uint64_t sequences() const { return sequences_; }
  uint64_t tokens() const { return bytes_ / token_bytes_; }
  uint64_t bin_bytes() const { return bytes_; }

 private:
  IndexedWriter(std::string prefix, Options options, MadeDirectory made, std::unique_ptr<OutputFile> bin, Spool lengths,
                Spool documents, Spool modes);

  absl::Status AddLengths(uint64_t tokens, std::span<const int32_t> lengths, std::span<const int8_t> modes);
  absl::StatusOr<std::unique_ptr<OutputFile>> WriteIndex();

  const std::string prefix_;
  const Options options_;
  const size_t token_bytes_;
  const MadeDirectory made_;
  std::unique_ptr<OutputFile> bin_;
  Spool lengths_spool_;    // i32 each
  Spool documents_spool_;  // i64 each
  Spool modes_spool_;      // i8 each
  std::string converted_;
  uint64_t documents_ = 0;
  uint64_t sequences_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_INDEXED_INDEXED_WRITER_H_
