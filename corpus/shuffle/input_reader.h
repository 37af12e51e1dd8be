// Reads all lines of the inputs, several ranges at the same time.
#ifndef CAIRN_CORPUS_SHUFFLE_INPUT_READER_H_
#define CAIRN_CORPUS_SHUFFLE_INPUT_READER_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "corpus/shuffle/input_list.h"
#include "corpus/shuffle/line_key.h"
#include "corpus/shuffle/line_multiset.h"
#include "corpus/shuffle/line_reader.h"

namespace cairn::corpus {

// The lines of one file that start in [begin, end).
struct InputRange {
  uint32_t file;
  uint64_t begin;
  uint64_t end;
};

// Divides plain files into ranges of at least `range_bytes`, at most 4096 a file. Any other file is one range. The
// division depends only on the arguments.
std::vector<InputRange> DivideInputs(const std::vector<InputFile>& inputs, uint64_t range_bytes);

// Keeps the first error of several threads.
class SharedStatus {
 public:
  void Update(const absl::Status& status);
  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  absl::Status Get();

 private:
  Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> failed_{false};
};

// Gives lines their keys. Subclasses take the lines.
class KeyedLineSink : public LineSink {
 public:
  // `placed`: each line has its place before it (placed_line.h), which does not belong to it.
  KeyedLineSink(uint64_t seed, bool placed) : keys_(seed), placed_(placed) {}

  void StartFile(uint32_t file) { file_ = file; }
  const LineMultiset& seen() const { return seen_; }
  void ClearSeen() { seen_ = {}; }

  absl::Status Line(uint64_t offset, std::string_view line) final;
  absl::Status BeginLongLine(uint64_t offset) final;
  absl::Status LongLinePiece(std::string_view piece) final;
  absl::Status EndLongLine() final;
  absl::Status EndBlock() final;

 protected:
  virtual absl::Status Take(LinePosition position, const LineKey& key, std::string_view line) = 0;
  // Called before the first piece.
  virtual absl::Status TakeLongBegin(LinePosition, const LineKey&) { return absl::OkStatus(); }
  virtual absl::Status TakeLongPiece(std::string_view piece) = 0;
  virtual absl::Status TakeLongEnd(LinePosition position, const LineKey& key, uint64_t length) = 0;
  // Where the long line that was taken last is in the files that are read.
  LinePosition long_source() const { return long_source_; }

 private:
  static constexpr size_t kBatch = 256;

  absl::Status StartLongLine(LinePosition position);

  LineKeyMaker keys_;
  const bool placed_;
  uint32_t file_ = 0;
  LineMultiset seen_;
  size_t size_ = 0;
  std::array<LinePosition, kBatch> positions_;
  std::array<std::string_view, kBatch> lines_;
  std::array<LineKey, kBatch> made_;
  LinePosition long_position_ = 0;
  LinePosition long_source_ = 0;
  LineKey long_key_{};
  std::string long_place_;  // the place of a long line, as far as it was read
  uint64_t long_hash_ = 0;
  uint64_t long_length_ = 0;
};

// Holds what all readers of a pass share.
struct ReadPass {
  const std::vector<InputFile>* inputs;
  const std::vector<InputRange>* ranges;
  std::vector<uint32_t> todo;   // indices of the ranges to read
  std::atomic<size_t> next{0};  // index into todo
  char separator = '\n';
  size_t long_line = 0;
  SourceOptions source;
  std::atomic<uint64_t>* bytes_read = nullptr;  // may be null
  std::atomic<bool> direct{true};               // true for all plain files so far
  SharedStatus status;
};

// Takes ranges until none is left or a reader fails. `memory` is for the prefetcher and has 2 * block_bytes. `after` is
// called with the index of each range after its lines were given to `sink`. Errors go to pass.status.
void ReadRanges(ReadPass& pass, char* memory, size_t block_bytes, KeyedLineSink& sink,
                absl::FunctionRef<absl::Status(uint32_t)> after);

}  // namespace cairn::corpus

#endif  // CAIRN_CORPUS_SHUFFLE_INPUT_READER_H_
