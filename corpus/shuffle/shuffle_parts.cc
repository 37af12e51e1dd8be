#include "corpus/shuffle/shuffle_parts.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/file/atomic_write.h"
#include "common/resources/aligned_buffer.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/made_directory.h"
#include "corpus/io/object_stores.h"
#include "corpus/io/open_source.h"
#include "corpus/io/output_file.h"
#include "corpus/io/prefetcher.h"
#include "corpus/io/ranged_input.h"
#include "corpus/shuffle/input_reader.h"
#include "corpus/shuffle/placed_line.h"
#include "corpus/shuffle/shuffle_job.h"

namespace cairn::corpus {
namespace {

constexpr size_t kReadBlock = size_t{4} << 20;
constexpr size_t kLongLine = size_t{1} << 20;
constexpr uint64_t kLeastBuffer = 64 << 10;
constexpr uint64_t kMostBuffer = 1 << 20;
constexpr int kBuffers = 2;

class BucketSink final : public KeyedLineSink {
 public:
  BucketSink(const ShuffleOptions& options, std::vector<std::unique_ptr<OutputFile>>& files,
             std::vector<LineMultiset>& lines, const std::atomic<bool>& stop)
      : KeyedLineSink(options.seed, false), separator_(options.separator), files_(files), lines_(lines), stop_(stop) {}

 private:
  uint32_t BucketOf(const LineKey& key) const {
    return KeyRange().BucketOf(key.high, static_cast<uint32_t>(files_.size()));
  }
  absl::Status PutPlaceOf(uint32_t bucket, LinePosition position) {
    char place[kPlaceBytes];
    PutPlace(position, separator_, place);
    return files_[bucket]->Append({place, sizeof(place)});
  }
  absl::Status Take(LinePosition position, const LineKey& key, std::string_view line) override {
    const uint32_t bucket = BucketOf(key);
    lines_[bucket].Add(line);
    CAIRN_RETURN_IF_ERROR(PutPlaceOf(bucket, position));
    CAIRN_RETURN_IF_ERROR(files_[bucket]->Append(line));
    return files_[bucket]->Append({&separator_, 1});
  }
  absl::Status TakeLongBegin(LinePosition position, const LineKey& key) override {
    long_bucket_ = BucketOf(key);
    long_hash_ = 0;
    return PutPlaceOf(long_bucket_, position);
  }
  absl::Status TakeLongPiece(std::string_view piece) override {
    if (stop_.load()) return MakeError(Reason::kInterrupted, "interrupted");
    long_hash_ = LineMultiset::Hash(long_hash_, piece);
    return files_[long_bucket_]->Append(piece);
  }
  absl::Status TakeLongEnd(LinePosition, const LineKey&, uint64_t length) override {
    lines_[long_bucket_].AddHashed(long_hash_, length);
    return files_[long_bucket_]->Append({&separator_, 1});
  }

  const char separator_;
  std::vector<std::unique_ptr<OutputFile>>& files_;
  std::vector<LineMultiset>& lines_;
  const std::atomic<bool>& stop_;
  uint32_t long_bucket_ = 0;
  uint64_t long_hash_ = 0;
};

// Gives the lines of sorted buckets to the output.
class JoinSink final : public LineSink {
 public:
  JoinSink(const RangedInput& input, char separator, ShuffleOutput& output, ShuffleProgress& progress)
      : input_(input), separator_(separator), output_(output), progress_(progress) {}

  absl::Status Line(uint64_t, std::string_view line) override {
    progress_.bytes_written.fetch_add(line.size() + 1, std::memory_order_relaxed);
    return output_.Line(line);
  }
  absl::Status BeginLongLine(uint64_t offset) override {
    CAIRN_ASSIGN_OR_RETURN(const uint64_t next, FirstLineFrom(input_, offset + 1, separator_, false));
    progress_.bytes_written.fetch_add(next - offset, std::memory_order_relaxed);
    return output_.BeginLongLine(next - offset - 1);
  }
  absl::Status LongLinePiece(std::string_view piece) override { return output_.LongLinePiece(piece); }
  absl::Status EndLongLine() override { return output_.EndLongLine(); }
  absl::Status EndBlock() override { return absl::OkStatus(); }

 private:
  const RangedInput& input_;
  const char separator_;
  ShuffleOutput& output_;
  ShuffleProgress& progress_;
};

absl::StatusOr<std::vector<InputRange>> RangesOf(const std::vector<InputFile>& inputs, const PartOfInputs& part) {
  std::vector<InputRange> ranges;
  for (size_t i = 0; i < part.pieces.size(); ++i) {
    const auto file = static_cast<uint32_t>(part.numbers[i]);
    const InputPiece& piece = part.pieces[i];
    const InputFile& input = inputs[file];
    if (!input.seekable) {
      ranges.push_back({file, 0, UINT64_MAX});
    } else if (const uint64_t begin = std::max(piece.begin, input.data_start); begin < piece.end) {
      ranges.push_back({file, begin, piece.end});
    }
  }
  return ranges;
}

}  // namespace

KeyRange KeysOfBucket(InputPart bucket) { return KeyRange().Part(bucket.number - 1, bucket.of); }

absl::StatusOr<uint64_t> ShuffleInputBytes(const ShuffleOptions& options) {
  CAIRN_ASSIGN_OR_RETURN(const OutputPlace place, FindShuffleOutput(options));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<InputFile> inputs, ListInputs(options.inputs));
  CAIRN_RETURN_IF_ERROR(CheckOutputIsNoInput(options, place, inputs));
  CAIRN_RETURN_IF_ERROR(CheckColumns(inputs, options.columns));
  uint64_t bytes = 0;
  for (const InputFile& input : inputs) {
    if (!input.rereadable) {
      return MakeError(Reason::kBadRequest,
                       absl::StrCat("parts need inputs that can be read again; ", input.path, " is a pipe"),
                       {{"file", input.path}, {"next", "Write it to a file first."}});
    }
    bytes += input.size;
  }
  return bytes;
}

absl::StatusOr<ScatteredPart> ScatterPart(const ShuffleOptions& options, InputPart part, uint32_t buckets,
                                          const std::atomic<bool>& stop) {
  if (buckets < 1 || buckets > kMostBuckets) {
    return MakeError(Reason::kBadRequest, absl::StrCat(buckets, " buckets: there may be 1 to ", kMostBuckets));
  }
  const SourceOptions source = SourceOptionsFor(options, stop);
  CAIRN_ASSIGN_OR_RETURN(std::vector<InputFile> inputs, ListInputs(options.inputs));
  CAIRN_RETURN_IF_ERROR(CheckColumns(inputs, options.columns));
  CAIRN_RETURN_IF_ERROR(ReadHeaders(inputs, options.header_lines, options.separator, source).status());
  std::vector<std::string> paths;
  for (const InputFile& input : inputs) paths.push_back(input.path);
  // The reader of a range finds the first line that begins in it.
  CAIRN_ASSIGN_OR_RETURN(const PartOfInputs found,
                         FindPart(paths, part, [](const RangedInput&, uint64_t offset) { return offset; }));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<InputRange> ranges, RangesOf(inputs, found));

  CAIRN_ASSIGN_OR_RETURN(const MadeDirectory directory, MadeDirectory::Of(options.output));
  ScatteredPart scattered;
  scattered.all = found.all;
  scattered.lines.resize(buckets);
  std::vector<std::unique_ptr<OutputFile>> files;
  OutputFile::Options writing;
  writing.buffers = kBuffers;
  writing.buffer_bytes =
      RoundUpToIo(std::clamp<uint64_t>(options.memory / 4 / buckets / kBuffers, kLeastBuffer, kMostBuffer));
  for (uint32_t bucket = 1; bucket <= buckets; ++bucket) {
    scattered.files.push_back(absl::StrFormat("%s-%05d", options.output, bucket));
    writing.partial_path = scattered.files.back() + ".partial";
    CAIRN_ASSIGN_OR_RETURN(auto file, OutputFile::Create(scattered.files.back(), writing));
    files.push_back(std::move(file));
  }
  ReadPass pass;
  pass.inputs = &inputs;
  pass.ranges = &ranges;
  for (uint32_t i = 0; i < ranges.size(); ++i) pass.todo.push_back(i);
  pass.separator = options.separator;
  pass.long_line = kLongLine;
  pass.source = source;
  BucketSink sink(options, files, scattered.lines, stop);
  AlignedBuffer memory(2 * kReadBlock);
  ReadRanges(pass, memory.data(), kReadBlock, sink, [](uint32_t) { return absl::OkStatus(); });
  CAIRN_RETURN_IF_ERROR(pass.status.Get());
  for (const auto& file : files) CAIRN_RETURN_IF_ERROR(file->Publish());
  if (StoresOf(options.output) == nullptr) CAIRN_RETURN_IF_ERROR(SyncDirectoryOf(options.output));
  return scattered;
}

absl::StatusOr<ShuffleReport> JoinBuckets(const ShuffleOptions& options, const std::vector<std::string>& sorted,
                                          const LineMultiset& expected, const std::atomic<bool>& stop,
                                          ShuffleProgress* progress) {
  ShuffleReport report;
  const SourceOptions source = SourceOptionsFor(options, stop);
  CAIRN_ASSIGN_OR_RETURN(const OutputPlace place, FindShuffleOutput(options));
  CAIRN_ASSIGN_OR_RETURN(std::vector<InputFile> inputs, ListInputs(options.inputs));
  CAIRN_ASSIGN_OR_RETURN(const std::string header,
                         ReadHeaders(inputs, options.header_lines, options.separator, source));
  CAIRN_ASSIGN_OR_RETURN(auto output, ShuffleOutput::Create(OutputOptionsFor(options, place, header, stop)));
  output->SetTotalLines(expected.lines);
  progress->pass = 2;
  progress->bytes_total = expected.bytes + expected.lines;
  AlignedBuffer memory(2 * kReadBlock);
  for (const std::string& path : sorted) {
    CAIRN_ASSIGN_OR_RETURN(const RangedInput input, RangedInput::Open(path));
    CAIRN_ASSIGN_OR_RETURN(auto bytes, OpenPlainSource(path, 0, UINT64_MAX, source));
    Prefetcher prefetcher(memory.data(), kReadBlock);
    prefetcher.Start(std::move(bytes));
    JoinSink sink(input, options.separator, *output, *progress);
    LineReaderOptions lines;
    lines.separator = options.separator;
    lines.long_line = kLongLine;
    const absl::Status status = ReadLines(prefetcher, lines, sink);
    prefetcher.Finish();
    CAIRN_RETURN_IF_ERROR(status);
  }
  CAIRN_RETURN_IF_ERROR(output->Finish());
  CAIRN_RETURN_IF_ERROR(CheckMultisets(expected, output->lines()));
  CAIRN_RETURN_IF_ERROR(output->Commit());
  report.lines = output->lines();
  report.outputs = output->paths();
  report.output_bytes = output->file_bytes();
  report.direct_output = output->direct();
  report.input_files = inputs.size();
  report.buckets = static_cast<uint32_t>(sorted.size());
  return report;
}

}  // namespace cairn::corpus
