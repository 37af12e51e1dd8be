// Gives text files as batches of whole lines, which several workers take.
#ifndef CAIRN_CORPUS_PREPROCESS_LINE_BATCHES_H_
#define CAIRN_CORPUS_PREPROCESS_LINE_BATCHES_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "corpus/io/byte_source.h"
#include "corpus/io/input_part.h"

namespace cairn::corpus {

// A buffer of bytes that grows without being cleared. It always has `padding` more bytes behind its capacity.
class GrowingBuffer {
 public:
  char* data() { return data_.get(); }
  const char* data() const { return data_.get(); }
  size_t capacity() const { return capacity_; }
  // Makes room for `capacity` bytes and keeps the first `keep` bytes. Gives back what is far more than `capacity`.
  void Reserve(size_t capacity, size_t keep);

 private:
  std::unique_ptr<char[]> data_;
  size_t capacity_ = 0;
};

struct LineBatch {
  size_t file = 0;          // index of the input
  uint64_t first_line = 1;  // its number in the file, from 1
  bool too_long = false;    // stands for a line that was skipped because of its length; `size` is 0
  GrowingBuffer buffer;     // kLinePadding bytes behind `size` are readable
  size_t size = 0;

  std::string_view text() const { return {buffer.data(), size}; }
};

// Lines end at LF, CR LF or CR, as in Python's text mode. Not thread-safe.
class LineBatches {
 public:
  struct Options {
    size_t batch_bytes = 1 << 20;
    size_t max_line = size_t{32} << 20;  // a line has at most this many bytes
    bool skip_long = false;              // a longer one is skipped
    SourceOptions source;
  };

  // The `files` are read one after the other, as OpenPiece does.
  LineBatches(std::vector<InputPiece> files, Options options);
  ~LineBatches();

  // Gets the next lines, all of one file: about batch_bytes, or one line if that is longer. Returns false at the end.
  // BAD_JSON_LINE: a line is longer than max_line, and such lines are not skipped; the metadata name file and line.
  // Then little more than max_line was read of it. Else as OpenPiece and ByteSource::Read.
  absl::StatusOr<bool> Next(LineBatch& batch);

  // Returns the error of a line that is longer than max_line, without its file and number.
  absl::Status TooLong() const;

  const std::vector<InputPiece>& files() const { return files_; }

 private:
  struct Source;

  absl::Status Open();
  // Gives the batch for the line with which its buffer begins, and drops the line. The buffer has `size` bytes.
  absl::Status GiveTooLong(LineBatch& batch, size_t size);

  std::vector<InputPiece> files_;
  const Options options_;
  std::unique_ptr<Source> source_;
  size_t file_ = 0;
  uint64_t line_ = 1;
  std::string carry_;  // bytes that were read and whose line has not ended
};

// Calls visit(line) for each line of `text`, without its end, and stops at the first error. There is no line behind a
// line end that ends the text.
template <typename Visit>
absl::Status ForEachLine(std::string_view text, Visit&& visit) {
  const bool returns = std::memchr(text.data(), '\r', text.size()) != nullptr;
  while (!text.empty()) {
    size_t end = text.find('\n');
    size_t next = end + 1;
    if (returns) {
      if (const size_t cr = text.substr(0, end).find('\r'); cr != std::string_view::npos) {
        end = cr;
        next = cr + 1 < text.size() && text[cr + 1] == '\n' ? cr + 2 : cr + 1;
      }
    }
    if (end == std::string_view::npos) end = next = text.size();
    if (absl::Status status = visit(text.substr(0, end)); !status.ok()) return status;
    text.remove_prefix(next);
  }
  return absl::OkStatus();
}

uint64_t CountLines(std::string_view text);

// A line and its padding must be counted by 32 bits.
inline constexpr size_t kMaxLineBytes = (size_t{1} << 32) - 1024;

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_PREPROCESS_LINE_BATCHES_H_
