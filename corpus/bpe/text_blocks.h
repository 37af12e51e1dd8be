// Cuts inputs into blocks of text that can be pre-tokenized independently.
#ifndef CAIRN_CORPUS_BPE_TEXT_BLOCKS_H_
#define CAIRN_CORPUS_BPE_TEXT_BLOCKS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/resources/aligned_buffer.h"
#include "corpus/bpe/pretokenizer.h"
#include "corpus/bpe/special_matcher.h"
#include "corpus/io/byte_source.h"

namespace cairn::corpus {

// Says what is done with bytes outside valid UTF-8.
enum class InvalidUtf8 { kBytes, kError, kSkip, kReplace };

// "bytes", "error", "skip" or "replace".
absl::StatusOr<InvalidUtf8> ParseInvalidUtf8(std::string_view name);

// Copies `text` to `out` with each ill-formed sequence dropped (kSkip) or, as Python's errors="replace" does, its
// maximal subparts replaced by U+FFFD (kReplace). A sequence that the end cuts off stays in the rest, whose length (0
// to 3) is returned, unless `last`.
size_t RepairUtf8(std::string_view text, InvalidUtf8 policy, bool last, std::string& out);

enum class TextUnit {
  kFile,  // a file is one text
  kLine,  // each line with its newline is a text
  kJson,  // each line is a JSON object that holds a text
};

struct TextBlock {
  std::string bytes;        // whole lines (kLine, kJson), or a part of a file that begins and ends at safe cuts
  size_t input = 0;         // which input
  uint64_t first_line = 0;  // of `bytes` in the input, from 1 (kJson)
};

// Reads inputs one after the other. Not thread-safe: callers share it under a lock, and work on blocks outside.
class BlockReader {
 public:
  struct Options {
    std::vector<std::string> inputs;
    TextUnit unit = TextUnit::kFile;
    InvalidUtf8 invalid_utf8 = InvalidUtf8::kBytes;
    size_t block_bytes = size_t{1} << 20;
    const std::atomic<bool>* stop = nullptr;  // ends reading with INTERRUPTED, also where input does not come
  };
  // Where the reader stands, which is enough to go on in another process.
  struct Position {
    size_t input = 0;
    uint64_t offset = 0;  // decompressed bytes of this input that were read
    uint64_t line = 1;
    std::string unread;      // of them, those that no block has had
    std::string incomplete;  // the beginning of a character whose rest was not read
  };

  // Both must outlive the reader.
  BlockReader(Options options, const Pretokenizer& pretokenizer, const SpecialMatcher& specials);

  // The next block; one without bytes at the end of all inputs.
  // Files are decompressed by their names as corpus/io/byte_source.h says.
  // NOT_FOUND (INPUT_UNREADABLE), CANCELLED (INTERRUPTED), INVALID_ARGUMENT (INVALID_UTF8; the message has file and
  // offset), RESOURCE_EXHAUSTED (MEMORY_LIMIT): 4 GiB of text without a place where it can be cut. The memory of
  // `used`, a block that is done, serves another one.
  absl::StatusOr<TextBlock> Next(TextBlock used = {});

  Position Tell() const;
  absl::Status Seek(Position position);
  // The bytes read of the input files themselves (compressed, if they are), for progress.
  uint64_t file_bytes_read() const { return file_bytes_; }

 private:
  absl::Status Open(uint64_t offset);
  absl::Status Fill(size_t wanted);
  absl::Status Append(std::string_view bytes, bool last);
  size_t CutPlace() const;

  const Options options_;
  const Pretokenizer& pretokenizer_;
  const SpecialMatcher& specials_;
  std::unique_ptr<ByteSource> source_;
  bool at_end_ = false;  // of the current input
  std::atomic<uint64_t> file_bytes_ = 0;
  Position position_;
  AlignedBuffer chunk_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_TEXT_BLOCKS_H_
