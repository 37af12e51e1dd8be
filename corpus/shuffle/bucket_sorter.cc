#include "corpus/shuffle/bucket_sorter.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn::corpus {
namespace {

constexpr size_t kBatch = 256;
constexpr size_t kPrefetchDistance = 12;
constexpr size_t kLongBuffer = 256 << 10;

// Makes the keys of records in batches, and passes both on.
template <typename Consumer>
class KeyedBatch {
 public:
  KeyedBatch(LineKeyMaker& keys, Consumer consumer) : keys_(keys), consumer_(std::move(consumer)) {}
  void Add(const BucketRecord& record) {
    positions_[size_] = record.position;
    records_[size_] = record;
    if (++size_ == kBatch) Flush();
  }
  void Flush() {
    keys_.Make(std::span(positions_).first(size_), made_);
    for (size_t i = 0; i < size_; ++i) consumer_(records_[i], made_[i]);
    size_ = 0;
  }

 private:
  LineKeyMaker& keys_;
  Consumer consumer_;
  size_t size_ = 0;
  std::array<LinePosition, kBatch> positions_;
  std::array<BucketRecord, kBatch> records_;
  std::array<LineKey, kBatch> made_;
};

// Waits for the results of a bucket's reads, in order.
class Arrivals {
 public:
  explicit Arrivals(size_t count) : arrived_(count) {}
  ~Arrivals() {
    MutexLock lock(mutex_);
    while (count_ < arrived_.size()) changed_.Wait(mutex_);
  }
  void Arrive(size_t index, const absl::Status& status) {
    MutexLock lock(mutex_);
    arrived_[index] = true;
    ++count_;
    if (error_.ok()) error_ = status;
    changed_.NotifyAll();
  }
  absl::Status WaitFor(size_t index) {
    MutexLock lock(mutex_);
    while (!arrived_[index]) changed_.Wait(mutex_);
    return error_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<bool> arrived_ ABSL_GUARDED_BY(mutex_);
  size_t count_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

void SortEntries(std::span<SortEntry> entries) { std::sort(entries.begin(), entries.end()); }

BucketSorter::BucketSorter(ScratchFile& scratch, char* memory, size_t memory_bytes, const Options& options)
    : scratch_(scratch),
      memory_(memory),
      memory_bytes_(memory_bytes),
      options_(options),
      keys_(options.seed),
      long_buffer_(kLongBuffer) {}

bool BucketSorter::Fits(const Bucket& bucket) const {
  return bucket.stored_bytes + bucket.records * sizeof(SortEntry) + sizeof(SortEntry) <= memory_bytes_;
}

absl::Status BucketSorter::Load(const Bucket& bucket) {
  entries_ = {};
  const size_t entry_bytes = bucket.records * sizeof(SortEntry);
  auto* const entries = reinterpret_cast<SortEntry*>(memory_ + (memory_bytes_ - entry_bytes) / 16 * 16);
  size_t count = 0;
  {
    Arrivals arrivals(bucket.extents.size());
    size_t place = 0;
    for (size_t i = 0; i < bucket.extents.size(); ++i) {
      const ScratchExtent& extent = bucket.extents[i];
      scratch_.Read(memory_ + place, extent.bytes(), extent.offset(),
                    [&arrivals, i](const absl::Status& status) { arrivals.Arrive(i, status); });
      place += extent.bytes();
    }
    KeyedBatch batch(keys_, [&](const BucketRecord& record, const LineKey& key) {
      if (count < bucket.records) entries[count] = SortEntry::Of(key, static_cast<uint64_t>(record.start - memory_));
      ++count;
    });
    place = 0;
    for (size_t i = 0; i < bucket.extents.size(); ++i) {
      CAIRN_RETURN_IF_ERROR(arrivals.WaitFor(i));
      const ScratchExtent& extent = bucket.extents[i];
      CAIRN_RETURN_IF_ERROR(
          VisitBlock({memory_ + place, extent.bytes()}, [&](const BucketRecord& r) { batch.Add(r); }));
      batch.Flush();
      place += extent.bytes();
      if (options_.discard) scratch_.Discard(extent);
    }
  }
  if (count != bucket.records) {
    return MakeError(Reason::kChecksumMismatch,
                     absl::StrCat("a bucket of the temporary file has ", count, " lines, not ", bucket.records));
  }
  entries_ = {entries, count};
  SortEntries(entries_);
  return absl::OkStatus();
}

absl::Status BucketSorter::Emit(ShuffleOutput& output) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (i + kPrefetchDistance < entries_.size()) {
      const char* const ahead = memory_ + entries_[i + kPrefetchDistance].place();
      __builtin_prefetch(ahead);
      __builtin_prefetch(ahead + 64);
    }
    const BucketLine line = ParseBucketLine(memory_ + entries_[i].place());
    if (line.is_long) {
      CAIRN_RETURN_IF_ERROR(EmitLong(line.length, line.data, output));
    } else {
      CAIRN_RETURN_IF_ERROR(output.Line({line.data, static_cast<size_t>(line.length)}));
    }
    bytes += line.length + 1;
    if (i % 1024 == 0) {
      if (Stopped()) return MakeError(Reason::kInterrupted, "interrupted");
      if (options_.bytes_written != nullptr) options_.bytes_written->fetch_add(std::exchange(bytes, 0));
    }
  }
  if (options_.bytes_written != nullptr) options_.bytes_written->fetch_add(bytes);
  return absl::OkStatus();
}

absl::Status BucketSorter::EmitLong(uint64_t length, const char* list, ShuffleOutput& output) {
  CAIRN_RETURN_IF_ERROR(output.BeginLongLine(length));
  for (const auto& [offset, bytes] : ParseLongLine(list)) {
    for (uint64_t done = 0; done < bytes; done += long_buffer_.size()) {
      if (Stopped()) return MakeError(Reason::kInterrupted, "interrupted");
      const size_t piece = static_cast<size_t>(std::min<uint64_t>(long_buffer_.size(), bytes - done));
      CAIRN_RETURN_IF_ERROR(scratch_.ReadNow(long_buffer_.data(), RoundUpToIo(piece), offset + done));
      CAIRN_RETURN_IF_ERROR(output.LongLinePiece({long_buffer_.data(), piece}));
    }
    if (options_.discard) scratch_.Discard(ScratchExtent(offset, std::min<uint64_t>(RoundUpToIo(bytes), 0xfffff000)));
  }
  return output.EndLongLine();
}

absl::Status BucketSorter::Divide(const Bucket& bucket, const KeyRange& range, std::vector<Bucket>& parts) {
  const size_t block = options_.block_bytes;
  const uint64_t need = bucket.stored_bytes + bucket.records * sizeof(SortEntry);
  const uint64_t most = memory_bytes_ / block - 3;  // one block is being read, and two are spare
  const auto count = static_cast<uint32_t>(std::clamp<uint64_t>(need * 3 / 2 / memory_bytes_ + 1, 2, most));
  BucketWriter writer(scratch_, memory_ + block, memory_bytes_ - block, block, count);
  absl::Status error;
  KeyedBatch batch(keys_, [&](const BucketRecord& record, const LineKey& key) {
    if (error.ok()) error = writer.AddRecord(range.BucketOf(key.high, count), record);
  });
  for (const ScratchExtent& extent : bucket.extents) {
    if (Stopped()) return MakeError(Reason::kInterrupted, "interrupted");
    CAIRN_RETURN_IF_ERROR(scratch_.ReadNow(memory_, extent.bytes(), extent.offset()));
    CAIRN_RETURN_IF_ERROR(VisitBlock({memory_, extent.bytes()}, [&](const BucketRecord& r) { batch.Add(r); }));
    batch.Flush();
    CAIRN_RETURN_IF_ERROR(error);
    if (options_.discard) scratch_.Discard(extent);
  }
  CAIRN_RETURN_IF_ERROR(writer.Flush());
  parts = std::move(writer.buckets());
  return absl::OkStatus();
}

absl::Status BucketSorter::EmitDivided(const Bucket& bucket, const KeyRange& range, ShuffleOutput& output) {
  std::vector<Bucket> parts;
  CAIRN_RETURN_IF_ERROR(Divide(bucket, range, parts));
  for (uint32_t i = 0; i < parts.size(); ++i) {
    const Bucket part = std::move(parts[i]);
    if (Fits(part)) {
      CAIRN_RETURN_IF_ERROR(Load(part));
      CAIRN_RETURN_IF_ERROR(Emit(output));
    } else {
      CAIRN_RETURN_IF_ERROR(EmitDivided(part, range.Part(i, static_cast<uint32_t>(parts.size())), output));
    }
  }
  return absl::OkStatus();
}

}  // namespace cairn::corpus
