#include "corpus/shuffle/input_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/open_source.h"
#include "corpus/shuffle/placed_line.h"

namespace cairn::corpus {
namespace {

constexpr uint64_t kMostRanges = 4096;

// Counts what is read, and stops if another reader has failed.
class CountingSource final : public ByteSource {
 public:
  CountingSource(std::unique_ptr<ByteSource> source, ReadPass& pass) : source_(std::move(source)), pass_(pass) {}
  absl::StatusOr<size_t> Read(char* buffer, size_t size) override {
    if (pass_.status.failed()) return MakeError(Reason::kInterrupted, "another thread failed");
    absl::StatusOr<size_t> count = source_->Read(buffer, size);
    if (count.ok() && pass_.bytes_read != nullptr) pass_.bytes_read->fetch_add(*count, std::memory_order_relaxed);
    return count;
  }
  bool direct() const override { return source_->direct(); }

 private:
  const std::unique_ptr<ByteSource> source_;
  ReadPass& pass_;
};

absl::Status NoPlace() {
  return MakeError(Reason::kInputUnreadable,
                   "a line is too short for the place before it: is this a bucket of --part?");
}

absl::Status ReadRange(ReadPass& pass, const InputRange& range, Prefetcher& prefetcher, KeyedLineSink& sink) {
  const InputFile& input = (*pass.inputs)[range.file];
  LineReaderOptions lines;
  lines.separator = pass.separator;
  lines.long_line = pass.long_line;
  lines.end = range.end;
  std::unique_ptr<ByteSource> source;
  if (input.seekable) {
    // A range after the first begins one byte early: if that byte is no separator, the range before has the first line.
    lines.inside_line = range.begin > input.data_start;
    lines.stream_offset = range.begin - (lines.inside_line ? 1 : 0);
    CAIRN_ASSIGN_OR_RETURN(source, OpenPlainSource(input.path, lines.stream_offset, range.end, pass.source));
  } else {
    CAIRN_ASSIGN_OR_RETURN(source, OpenSource(input.path, pass.source));
    if (input.data_start > 0) source = SkipBytes(std::move(source), input.data_start);
    lines.stream_offset = input.data_start;
  }
  sink.StartFile(range.file);
  prefetcher.Start(std::make_unique<CountingSource>(std::move(source), pass));
  const absl::Status status = ReadLines(prefetcher, lines, sink);
  const bool direct = prefetcher.Finish();
  if (input.rereadable && !direct) pass.direct.store(false, std::memory_order_relaxed);
  return status;
}

}  // namespace

std::vector<InputRange> DivideInputs(const std::vector<InputFile>& inputs, uint64_t range_bytes) {
  std::vector<InputRange> ranges;
  for (uint32_t file = 0; file < inputs.size(); ++file) {
    const InputFile& input = inputs[file];
    if (!input.seekable) {
      ranges.push_back({file, 0, UINT64_MAX});
      continue;
    }
    const uint64_t size = input.size - std::min(input.size, input.data_start);
    const uint64_t step = std::max({range_bytes, size / kMostRanges + 1, uint64_t{1}});
    for (uint64_t begin = input.data_start; begin < input.size; begin += step) {
      // The last range has no end, because the file may have grown since it was listed.
      const bool last = input.size - begin <= step;
      ranges.push_back({file, begin, last ? UINT64_MAX : begin + step});
      if (last) break;
    }
  }
  return ranges;
}

void SharedStatus::Update(const absl::Status& status) {
  if (status.ok()) return;
  MutexLock lock(mutex_);
  if (status_.ok()) status_ = status;
  failed_.store(true, std::memory_order_relaxed);
}

absl::Status SharedStatus::Get() {
  MutexLock lock(mutex_);
  return status_;
}

absl::Status KeyedLineSink::Line(uint64_t offset, std::string_view line) {
  if (offset > kMaxOffset)
    return MakeError(Reason::kUnsupported, "an input is above 16 TiB when decompressed; split it");
  positions_[size_] = MakePosition(file_, offset);
  if (placed_) {
    if (line.size() < kPlaceBytes) return NoPlace();
    positions_[size_] = GetPlace(line.data());
    line.remove_prefix(kPlaceBytes);
  }
  lines_[size_] = line;
  return ++size_ < kBatch ? absl::OkStatus() : EndBlock();
}

absl::Status KeyedLineSink::EndBlock() {
  keys_.Make(std::span(positions_).first(size_), made_);
  for (size_t i = 0; i < size_; ++i) {
    seen_.Add(lines_[i]);
    CAIRN_RETURN_IF_ERROR(Take(positions_[i], made_[i], lines_[i]));
  }
  size_ = 0;
  return absl::OkStatus();
}

absl::Status KeyedLineSink::BeginLongLine(uint64_t offset) {
  CAIRN_RETURN_IF_ERROR(EndBlock());
  long_hash_ = long_length_ = 0;
  long_place_.clear();
  long_source_ = MakePosition(file_, offset + (placed_ ? kPlaceBytes : 0));
  return placed_ ? absl::OkStatus() : StartLongLine(long_source_);
}

absl::Status KeyedLineSink::StartLongLine(LinePosition position) {
  long_position_ = position;
  keys_.Make({&long_position_, 1}, {&long_key_, 1});
  return TakeLongBegin(long_position_, long_key_);
}

absl::Status KeyedLineSink::LongLinePiece(std::string_view piece) {
  if (placed_ && long_place_.size() < kPlaceBytes) {
    const size_t count = std::min(piece.size(), kPlaceBytes - long_place_.size());
    long_place_.append(piece, 0, count);
    piece.remove_prefix(count);
    if (long_place_.size() < kPlaceBytes) return absl::OkStatus();
    CAIRN_RETURN_IF_ERROR(StartLongLine(GetPlace(long_place_.data())));
  }
  long_hash_ = LineMultiset::Hash(long_hash_, piece);
  long_length_ += piece.size();
  return TakeLongPiece(piece);
}

absl::Status KeyedLineSink::EndLongLine() {
  if (placed_ && long_place_.size() < kPlaceBytes) return NoPlace();
  seen_.AddHashed(long_hash_, long_length_);
  return TakeLongEnd(long_position_, long_key_, long_length_);
}

void ReadRanges(ReadPass& pass, char* memory, size_t block_bytes, KeyedLineSink& sink,
                absl::FunctionRef<absl::Status(uint32_t)> after) {
  Prefetcher prefetcher(memory, block_bytes);
  while (!pass.status.failed()) {
    const size_t next = pass.next.fetch_add(1);
    if (next >= pass.todo.size()) return;
    const uint32_t index = pass.todo[next];
    absl::Status status = ReadRange(pass, (*pass.ranges)[index], prefetcher, sink);
    if (status.ok()) status = after(index);
    pass.status.Update(status);
  }
}

}  // namespace cairn::corpus
