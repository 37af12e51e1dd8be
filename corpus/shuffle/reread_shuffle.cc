// Shuffles without a temporary disk: each pass over the input keeps the lines of the next range of keys.
#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/resources/memory.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/open_source.h"
#include "corpus/shuffle/bucket.h"
#include "corpus/shuffle/bucket_sorter.h"
#include "corpus/shuffle/shuffle_job.h"
#include "corpus/shuffle/varint.h"

namespace cairn::corpus {
namespace {

constexpr size_t kPrefetchDistance = 12;

// The keys that this pass keeps: `from` to `last`, both included. A reader that has no room left lowers `last`.
struct Selection {
  uint64_t from = 0;
  std::atomic<uint64_t> last{UINT64_MAX};

  void LowerTo(uint64_t value) {
    uint64_t now = last.load();
    while (value < now && !last.compare_exchange_weak(now, value)) {
    }
  }
};

// Keeps one reader's lines: records grow from the front of its memory, entries from the back.
class Selector final : public KeyedLineSink {
 public:
  Selector(char* memory, size_t memory_bytes, Selection& selection, const ShuffleJob& job)
      : KeyedLineSink(job.options.seed, job.options.placed),
        memory_(memory),
        memory_bytes_(memory_bytes),
        selection_(selection),
        job_(job) {}

  void Clear() { used_ = count_ = 0; }

  // Drops the lines above the last key and sorts the others.
  std::span<SortEntry> Sorted() {
    Compact();
    SortEntries(entries());
    return entries();
  }
  const char* memory() const { return memory_; }

 private:
  static constexpr size_t kRecordOverhead = 2 * kMaxVarintBytes;

  std::span<SortEntry> entries() {
    auto* const end = reinterpret_cast<SortEntry*>(memory_ + memory_bytes_);
    return {end - count_, count_};
  }

  absl::Status Take(LinePosition, const LineKey& key, std::string_view line) override {
    if (!Wanted(key)) return absl::OkStatus();
    CAIRN_RETURN_IF_ERROR(MakeRoom(line.size()));
    if (!Wanted(key)) return absl::OkStatus();
    char* out = PutVarint(memory_ + used_, line.size() << 1);
    std::copy(line.begin(), line.end(), out);
    Push(key, static_cast<size_t>(out - memory_) + line.size());
    return absl::OkStatus();
  }
  absl::Status TakeLongPiece(std::string_view) override {
    return job_.Stopped() ? MakeError(Reason::kInterrupted, "interrupted") : absl::OkStatus();
  }
  // Keeps only the place of a long line.
  absl::Status TakeLongEnd(LinePosition, const LineKey& key, uint64_t length) override {
    if (!Wanted(key)) return absl::OkStatus();
    CAIRN_RETURN_IF_ERROR(MakeRoom(kMaxVarintBytes));
    if (!Wanted(key)) return absl::OkStatus();
    char* out = PutVarint(memory_ + used_, length << 1 | 1);
    out = PutVarint(out, long_source());
    Push(key, static_cast<size_t>(out - memory_));
    return absl::OkStatus();
  }

  bool Wanted(const LineKey& key) const {
    return key.high >= selection_.from && key.high <= selection_.last.load(std::memory_order_relaxed);
  }
  size_t Free() const { return memory_bytes_ - used_ - count_ * sizeof(SortEntry); }
  void Push(const LineKey& key, size_t used) {
    ++count_;
    entries().front() = SortEntry::Of(key, used_);
    used_ = used;
  }

  absl::Status MakeRoom(size_t line_bytes) {
    const size_t need = line_bytes + kRecordOverhead + sizeof(SortEntry);
    if (Free() >= need) return absl::OkStatus();
    Compact();  // another reader may have lowered the last key
    while (Free() < memory_bytes_ / 8 + need) {
      const auto mine = entries();
      if (mine.size() < 2)
        return MakeError(Reason::kMemoryLimit, "the memory holds not even two lines; give more --memory");
      const auto middle = mine.begin() + static_cast<ptrdiff_t>(mine.size() / 2);
      std::nth_element(mine.begin(), middle, mine.end());
      selection_.LowerTo(middle->high - 1);
      Compact();
    }
    return absl::OkStatus();
  }

  // Forgets the lines above the last key.
  void Compact() {
    const uint64_t last = selection_.last.load();
    auto mine = entries();
    const auto unwanted =
        std::partition(mine.begin(), mine.end(), [last](const SortEntry& e) { return e.high > last; });
    if (unwanted == mine.begin()) return;
    count_ -= static_cast<size_t>(unwanted - mine.begin());
    mine = entries();
    std::sort(mine.begin(), mine.end(), [](const SortEntry& a, const SortEntry& b) { return a.place() < b.place(); });
    used_ = 0;
    for (SortEntry& entry : mine) {
      const char* const start = memory_ + entry.place();
      const BucketLine line = ParseBucketLine(start);
      uint64_t ignored;
      const char* const end =
          line.is_long ? GetVarint(line.data, line.data + kMaxVarintBytes, &ignored) : line.data + line.length;
      const size_t size = static_cast<size_t>(end - start);
      std::copy(start, end, memory_ + used_);
      entry.low = (entry.low - entry.place()) | used_;
      used_ += size;
    }
  }

  char* const memory_;
  const size_t memory_bytes_;
  Selection& selection_;
  const ShuffleJob& job_;
  size_t used_ = 0;
  size_t count_ = 0;
};

// Reads a long line from its input again.
absl::Status EmitLongLine(const ShuffleJob& job, LinePosition position, uint64_t length, ShuffleOutput& output) {
  const InputFile& input = job.inputs[position >> kOffsetBits];
  const uint64_t offset = position & kMaxOffset;
  std::unique_ptr<ByteSource> source;
  if (input.seekable) {
    CAIRN_ASSIGN_OR_RETURN(source, OpenPlainSource(input.path, offset, offset + length, job.source));
  } else {
    CAIRN_ASSIGN_OR_RETURN(source, OpenSource(input.path, job.source));
    source = SkipBytes(std::move(source), offset);
  }
  AlignedBuffer buffer(256 << 10);
  CAIRN_RETURN_IF_ERROR(output.BeginLongLine(length));
  while (length > 0) {
    CAIRN_ASSIGN_OR_RETURN(const size_t count, source->Read(buffer.data(), buffer.size()));
    if (count == 0) {
      return MakeError(Reason::kInputUnreadable, absl::StrCat(input.path, " became shorter while it was read"),
                       {{"file", input.path}});
    }
    const size_t taken = static_cast<size_t>(std::min<uint64_t>(count, length));
    CAIRN_RETURN_IF_ERROR(output.LongLinePiece({buffer.data(), taken}));
    length -= taken;
  }
  return output.EndLongLine();
}

// Lines lie in memory in another order than they are written.
void Prefetch(const Selector& selector, std::span<SortEntry> run) {
  if (run.size() <= kPrefetchDistance) return;
  const char* const ahead = selector.memory() + run[kPrefetchDistance].place();
  __builtin_prefetch(ahead);
  __builtin_prefetch(ahead + 64);
}

// Merges the readers' sorted lines.
absl::Status EmitSelected(ShuffleJob& job, std::vector<std::unique_ptr<Selector>>& selectors, ShuffleOutput& output) {
  std::vector<std::span<SortEntry>> runs(selectors.size());
  std::atomic<size_t> next = 0;
  RunOnThreads(static_cast<int>(selectors.size()), [&] {
    for (size_t i = next++; i < runs.size(); i = next++) runs[i] = selectors[i]->Sorted();
  });
  for (uint64_t emitted = 0;; ++emitted) {
    if (emitted % 1024 == 0 && job.Stopped()) return MakeError(Reason::kInterrupted, "interrupted");
    size_t first = runs.size();
    for (size_t i = 0; i < runs.size(); ++i) {
      if (!runs[i].empty() && (first == runs.size() || runs[i].front() < runs[first].front())) first = i;
    }
    if (first == runs.size()) return absl::OkStatus();
    Prefetch(*selectors[first], runs[first]);
    const BucketLine line = ParseBucketLine(selectors[first]->memory() + runs[first].front().place());
    if (line.is_long) {
      uint64_t position = 0;
      GetVarint(line.data, line.data + kMaxVarintBytes, &position);
      CAIRN_RETURN_IF_ERROR(EmitLongLine(job, position, line.length, output));
    } else {
      CAIRN_RETURN_IF_ERROR(output.Line({line.data, static_cast<size_t>(line.length)}));
    }
    job.progress->bytes_written.fetch_add(line.length + 1, std::memory_order_relaxed);
    runs[first] = runs[first].subspan(1);
  }
}

}  // namespace

absl::Status ShuffleByRereading(ShuffleJob& job, ShuffleOutputOptions output_options) {
  const MemoryPlan& plan = job.plan;
  CAIRN_ASSIGN_OR_RETURN(auto output, ShuffleOutput::Create(std::move(output_options)));
  Selection selection;
  const size_t share = 2 * plan.read_block + plan.writer_bytes;
  std::vector<std::unique_ptr<Selector>> selectors;
  for (int i = 0; i < plan.readers; ++i) {
    char* const memory = job.region.data() + static_cast<size_t>(i) * share + 2 * plan.read_block;
    selectors.push_back(std::make_unique<Selector>(memory, plan.writer_bytes, selection, job));
  }
  LineMultiset read;
  while (true) {
    ReadPass pass;
    pass.inputs = &job.inputs;
    pass.ranges = &job.ranges;
    for (uint32_t i = 0; i < job.ranges.size(); ++i) pass.todo.push_back(i);
    pass.separator = job.options.separator;
    pass.long_line = std::min<size_t>(plan.writer_bytes / 64, 1 << 20);
    pass.source = job.source;
    job.progress->bytes_read = 0;
    pass.bytes_read = &job.progress->bytes_read;
    job.progress->pass = 1;
    for (const auto& selector : selectors) {
      selector->Clear();
      selector->ClearSeen();
    }
    // Where the system refuses threads, the other readers take their ranges.
    std::atomic<size_t> next_reader = 0;
    RunOnThreads(plan.readers, [&] {
      pass.status.Update(WithMemory("to read the inputs", [&] {
        const size_t i = next_reader++;
        ReadRanges(pass, job.region.data() + i * share, plan.read_block, *selectors[i],
                   [](uint32_t) { return absl::OkStatus(); });
        return absl::OkStatus();
      }));
    });
    CAIRN_RETURN_IF_ERROR(pass.status.Get());
    job.report.direct_input = pass.direct.load();

    LineMultiset seen;
    for (const auto& selector : selectors) seen += selector->seen();
    if (selection.from == 0) {
      read = seen;
      output->SetTotalLines(read.lines);
    } else {
      ++job.report.input_passes;
      if (seen != read) return MakeError(Reason::kChecksumMismatch, "an input changed while it was being read again");
    }
    job.progress->pass = 2;
    CAIRN_RETURN_IF_ERROR(EmitSelected(job, selectors, *output));
    const uint64_t last = selection.last.load();
    if (last == UINT64_MAX) break;
    // The next range is a little wider than this one. If that is too wide, a reader that overflows lowers its end.
    const uint64_t width = last - selection.from;
    selection.from = last + 1;
    selection.last = UINT64_MAX - selection.from < width + width / 16 ? UINT64_MAX : selection.from + width;
  }
  CAIRN_RETURN_IF_ERROR(output->Finish());
  CAIRN_RETURN_IF_ERROR(CheckMultisets(read, output->lines()));
  if (job.Stopped()) return MakeError(Reason::kInterrupted, "interrupted");
  CAIRN_RETURN_IF_ERROR(output->Commit());
  job.report.lines = output->lines();
  job.report.outputs = output->paths();
  job.report.output_bytes = output->file_bytes();
  job.report.direct_output = output->direct();
  return absl::OkStatus();
}

}  // namespace cairn::corpus
