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
#include "corpus/io/input_part.h"

namespace cairn::corpus {

// Says what happens to bytes outside of valid UTF-8.
enum class InvalidUtf8 { kBytes, kError, kSkip, kReplace };

// `name` is "bytes", "error", "skip" or "replace".
absl::StatusOr<InvalidUtf8> ParseInvalidUtf8(std::string_view name);

// Copies `text` to `out`. It drops each ill-formed sequence (kSkip) or, like Python's errors="replace", replaces its
// maximal subparts by U+FFFD (kReplace). A sequence that the end cuts off is not copied, unless `last`; the length of
// this rest (0 to 3) is returned.
size_t RepairUtf8(std::string_view text, InvalidUtf8 policy, bool last, std::string& out);

enum class TextUnit {
  kFile,  // a file is one text
  kLine,  // each line with its newline is a text
  kJson,  // each line is a JSON object that holds a text
};

struct TextBlock {
  std::string bytes;        // whole lines (kLine, kJson), or a part of a file that begins and ends at safe cuts
  size_t input = 0;         // index of the input
  uint64_t first_line = 0;  // the number of the first line of `bytes` in the input, from 1 (kLine, kJson)
  bool too_long = false;    // stands for a line that is longer than most_bytes (kLine, kJson), without its bytes

  bool at_end() const { return bytes.empty() && !too_long; }
};

// Returns the largest place up to `offset` where a text may be cut, so that both sides have the words that they have
// together; 0 if there is none. Allowed only if pretokenizer.has_safe_cuts(). INPUT_UNREADABLE.
absl::StatusOr<uint64_t> SafeCutBefore(const RangedInput& input, uint64_t offset, const Pretokenizer& pretokenizer,
                                       const SpecialMatcher& specials);

// Reads inputs one after the other. Not thread-safe: threads share it under a lock, and work on its blocks outside of
// the lock.
class BlockReader {
 public:
  struct Options {
    std::vector<InputPiece> inputs;  // of a plain text, pieces must begin and end where SafeCutBefore says
    TextUnit unit = TextUnit::kFile;
    InvalidUtf8 invalid_utf8 = InvalidUtf8::kBytes;
    size_t block_bytes = size_t{1} << 20;
    size_t most_bytes = (size_t{1} << 32) - 1;  // of a block without a place where it can be cut; a line, say, which
                                                // may be up to block_bytes longer
    std::vector<std::string> columns;           // as in SourceOptions
    int table_readers = 1;                      // as in SourceOptions
    const std::atomic<bool>* stop = nullptr;    // ends reading with INTERRUPTED, also while input does not come
  };
  // Says where the reader stands, which is enough to go on in another process.
  struct Position {
    size_t input = 0;
    uint64_t offset = 0;  // how many decompressed bytes of this input were read
    uint64_t line = 1;
    std::string unread;      // those of them that no block has got yet
    std::string incomplete;  // the begin of a character whose rest was not read
  };

  // Both must outlive the reader.
  BlockReader(Options options, const Pretokenizer& pretokenizer, const SpecialMatcher& specials);

  // Returns the next block, or one that is at_end() behind all inputs. The name of a file says how it is read
  // (corpus/io/open_source.h), which may fail as told there. `used` is a block that is done, whose memory serves
  // another one. NOT_FOUND (INPUT_UNREADABLE), CANCELLED (INTERRUPTED), INVALID_ARGUMENT (INVALID_UTF8; the message has
  // file and offset), RESOURCE_EXHAUSTED (MEMORY_LIMIT): a text (kFile) has more than most_bytes without a place where
  // they can be cut.
  absl::StatusOr<TextBlock> Next(TextBlock used = {});

  Position Tell() const;
  absl::Status Seek(Position position);
  // Counts the bytes read from the input files themselves (compressed ones, if they are), for progress.
  uint64_t file_bytes_read() const { return file_bytes_; }

 private:
  absl::Status Open(uint64_t offset);
  absl::Status Fill(size_t wanted);
  absl::Status Append(std::string_view bytes, bool last);
  size_t CutPlace() const;
  absl::Status DropLine();
  absl::Status TooLong() const;

  const Options options_;
  const Pretokenizer& pretokenizer_;
  const SpecialMatcher& specials_;
  std::unique_ptr<ByteSource> source_;
  bool at_end_ = false;    // of the current input
  bool dropping_ = false;  // the rest of a line that is too long
  std::atomic<uint64_t> file_bytes_ = 0;
  Position position_;
  AlignedBuffer chunk_;
};

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_BPE_TEXT_BLOCKS_H_
