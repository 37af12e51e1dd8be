// Makes the two passes through the temporary disk.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/resources/memory.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/shuffle/bucket.h"
#include "corpus/shuffle/bucket_sorter.h"
#include "corpus/shuffle/shuffle_job.h"

namespace cairn::corpus {
namespace {

// Holds what the first pass leaves, as far as it is durable.
struct Scattered {
  std::vector<Bucket> buckets;
  std::vector<bool> done;  // by range
  LineMultiset seen;
  uint64_t allocated = 0;  // bytes of the temporary file
};

nlohmann::json ToJson(const LineMultiset& lines) { return {lines.lines, lines.bytes, lines.sum_a, lines.sum_b}; }

LineMultiset MultisetFrom(const nlohmann::json& json) {
  return {json.at(0).get<uint64_t>(), json.at(1).get<uint64_t>(), json.at(2).get<uint64_t>(),
          json.at(3).get<uint64_t>()};
}

// Makes an entry of the journal: ranges whose lines are on the temporary disk, and where.
nlohmann::json ScatterEntry(const std::vector<uint32_t>& ranges, const std::vector<Bucket>& buckets,
                            const LineMultiset& seen, uint64_t allocated) {
  nlohmann::json entry = {{"kind", "ranges"}, {"ranges", ranges}, {"seen", ToJson(seen)}, {"allocated", allocated}};
  nlohmann::json& list = entry["buckets"] = nlohmann::json::array();
  for (uint32_t i = 0; i < buckets.size(); ++i) {
    if (buckets[i].extents.empty()) continue;
    nlohmann::json extents = nlohmann::json::array();
    for (const ScratchExtent& extent : buckets[i].extents) extents.push_back(extent.packed());
    list.push_back({i, buckets[i].records, std::move(extents)});
  }
  return entry;
}

void ApplyScatterEntry(const nlohmann::json& entry, Scattered& scattered) {
  for (const nlohmann::json& range : entry.at("ranges")) scattered.done.at(range.get<size_t>()) = true;
  for (const nlohmann::json& item : entry.at("buckets")) {
    Bucket bucket;
    bucket.records = item.at(1).get<uint64_t>();
    for (const nlohmann::json& packed : item.at(2)) {
      bucket.extents.push_back(ScratchExtent::FromPacked(packed.get<uint64_t>()));
      bucket.stored_bytes += bucket.extents.back().bytes();
    }
    scattered.buckets.at(item.at(0).get<size_t>()).Append(bucket);
  }
  scattered.seen += MultisetFrom(entry.at("seen"));
  scattered.allocated = std::max(scattered.allocated, entry.at("allocated").get<uint64_t>());
}

class ScatterSink final : public KeyedLineSink {
 public:
  ScatterSink(uint32_t buckets, BucketWriter& writer, const ShuffleJob& job)
      : KeyedLineSink(job.options.seed, job.options.placed), buckets_(buckets), writer_(writer), job_(job) {}

 private:
  absl::Status Take(LinePosition position, const LineKey& key, std::string_view line) override {
    return writer_.Add(job_.options.keys.BucketOf(key.high, buckets_), position, line);
  }
  absl::Status TakeLongPiece(std::string_view piece) override {
    if (job_.Stopped()) return MakeError(Reason::kInterrupted, "interrupted");
    return writer_.LongLinePiece(piece);
  }
  absl::Status TakeLongEnd(LinePosition position, const LineKey& key, uint64_t) override {
    return writer_.EndLongLine(job_.options.keys.BucketOf(key.high, buckets_), position);
  }

  const uint32_t buckets_;
  BucketWriter& writer_;
  const ShuffleJob& job_;
};

// The first pass puts every line into its bucket.
absl::Status Scatter(ShuffleJob& job, ScratchFile& scratch, Journal* journal, Scattered& scattered) {
  const MemoryPlan& plan = job.plan;
  ReadPass pass;
  pass.inputs = &job.inputs;
  pass.ranges = &job.ranges;
  for (uint32_t i = 0; i < job.ranges.size(); ++i) {
    if (!scattered.done[i]) pass.todo.push_back(i);
  }
  pass.separator = job.options.separator;
  pass.long_line = BucketWriter::LongestLine(plan.block_bytes);
  pass.source = job.source;
  pass.bytes_read = &job.progress->bytes_read;

  Mutex mutex;  // guards scattered and journal
  const size_t share = 2 * plan.read_block + plan.writer_bytes;
  const auto work = [&](int reader) -> absl::Status {
    char* const memory = job.region.data() + static_cast<size_t>(reader) * share;
    BucketWriter writer(scratch, memory + 2 * plan.read_block, plan.writer_bytes, plan.block_bytes, plan.buckets);
    ScatterSink sink(plan.buckets, writer, job);
    std::vector<uint32_t> unsaved;
    // Makes durable what was read since the last time.
    const auto save = [&]() -> absl::Status {
      CAIRN_RETURN_IF_ERROR(writer.Flush());
      MutexLock lock(mutex);
      if (journal != nullptr && !unsaved.empty()) {
        CAIRN_RETURN_IF_ERROR(scratch.Sync());
        CAIRN_RETURN_IF_ERROR(
            journal->Append(ScatterEntry(unsaved, writer.buckets(), sink.seen(), scratch.allocated())));
      }
      for (uint32_t i = 0; i < plan.buckets; ++i) {
        scattered.buckets[i].Append(writer.buckets()[i]);
        writer.buckets()[i] = Bucket();
      }
      scattered.seen += sink.seen();
      for (const uint32_t range : unsaved) scattered.done[range] = true;
      unsaved.clear();
      sink.ClearSeen();
      return absl::OkStatus();
    };
    ReadRanges(pass, memory, plan.read_block, sink, [&](uint32_t range) {
      unsaved.push_back(range);
      const bool due = journal != nullptr && sink.seen().bytes >= job.options.checkpoint_bytes;
      return due ? save() : absl::OkStatus();
    });
    return pass.status.failed() ? absl::OkStatus() : save();
  };
  // Where the system refuses threads, the other readers take their ranges.
  std::atomic<int> next_reader = 0;
  RunOnThreads(plan.readers,
               [&] { pass.status.Update(WithMemory("to read the inputs", [&] { return work(next_reader++); })); });
  job.report.direct_input = pass.direct.load();
  return pass.status.Get();
}

// The second pass takes the buckets one after the other. Each is loaded and sorted while others are being written.
class Gatherer {
 public:
  Gatherer(ShuffleJob& job, ScratchFile& scratch, Journal* journal, const Scattered& scattered, ShuffleOutput& output,
           uint32_t first_bucket)
      : job_(job),
        scratch_(scratch),
        journal_(journal),
        scattered_(scattered),
        output_(output),
        next_(first_bucket),
        turn_(first_bucket),
        checkpointed_bytes_(output.lines().bytes) {}

  absl::Status Run() {
    std::atomic<int> next_sorter = 0;
    RunOnThreads(job_.plan.sorters, [&] {
      const absl::Status status = WithMemory("to sort lines", [&] { return Work(next_sorter++); });
      if (status.ok()) return;
      MutexLock lock(mutex_);
      status_.Update(status);
      changed_.NotifyAll();
    });
    MutexLock lock(mutex_);
    return status_;
  }

 private:
  absl::Status Work(int index) {
    BucketSorter::Options options;
    options.seed = job_.options.seed;
    options.block_bytes = job_.plan.block_bytes;
    options.discard = journal_ == nullptr;
    options.stop = job_.stop;
    options.bytes_written = &job_.progress->bytes_written;
    const size_t share = job_.plan.sorter_bytes;
    BucketSorter sorter(scratch_, job_.region.data() + static_cast<size_t>(index) * share, share, options);
    while (true) {
      uint32_t bucket;
      {
        MutexLock lock(mutex_);
        if (!status_.ok() || next_ >= scattered_.buckets.size()) return absl::OkStatus();
        bucket = next_++;
      }
      const bool fits = sorter.Fits(scattered_.buckets[bucket]);
      absl::Status status = fits ? sorter.Load(scattered_.buckets[bucket]) : absl::OkStatus();
      {
        MutexLock lock(mutex_);
        while (turn_ != bucket && status_.ok()) changed_.Wait(mutex_);
        if (!status_.ok()) return absl::OkStatus();
      }
      // From here on only this thread writes.
      if (status.ok()) status = fits ? sorter.Emit(output_) : EmitDivided(sorter, bucket);
      if (status.ok()) status = MaybeCheckpoint(bucket);
      MutexLock lock(mutex_);
      if (status_.ok()) status_ = status;
      ++turn_;
      changed_.NotifyAll();
    }
  }

  absl::Status EmitDivided(BucketSorter& sorter, uint32_t bucket) {
    ++job_.report.divided_buckets;
    const KeyRange range = job_.options.keys.Part(bucket, static_cast<uint32_t>(scattered_.buckets.size()));
    return sorter.EmitDivided(scattered_.buckets[bucket], range, output_);
  }

  absl::Status MaybeCheckpoint(uint32_t bucket) {
    if (journal_ == nullptr || output_.lines().bytes - checkpointed_bytes_ < job_.options.checkpoint_bytes) {
      return absl::OkStatus();
    }
    CAIRN_ASSIGN_OR_RETURN(nlohmann::json checkpoint, output_.Checkpoint());
    checkpointed_bytes_ = output_.lines().bytes;
    return journal_->Append({{"kind", "output"}, {"next_bucket", bucket + 1}, {"output", std::move(checkpoint)}});
  }

  ShuffleJob& job_;
  ScratchFile& scratch_;
  Journal* const journal_;
  const Scattered& scattered_;
  ShuffleOutput& output_;  // belongs to the thread whose turn it is
  Mutex mutex_;
  CondVar changed_;
  uint32_t next_ ABSL_GUARDED_BY(mutex_);
  uint32_t turn_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  uint64_t checkpointed_bytes_;
};

struct Resumed {
  std::optional<nlohmann::json> output;
  uint32_t next_bucket = 0;
};

uint64_t BytesOf(const std::string& path) {
  struct stat found;
  return stat(path.c_str(), &found) == 0 ? static_cast<uint64_t>(found.st_size) : 0;
}

// Takes up the work that the journal records. Returns false if this run cannot go on from it, because it has less
// memory, or because files are gone (those of a run that was killed when its output had its name already). Then
// everything begins anew.
bool TakeUp(const std::vector<nlohmann::json>& entries, const std::string& scratch_path,
            const ShuffleOutputOptions& output, ShuffleJob& job, Scattered& scattered, Resumed& resumed) {
  try {
    for (const nlohmann::json& entry : entries) {
      const std::string kind = entry.at("kind").get<std::string>();
      if (kind == "plan") {
        const auto buckets = entry.at("buckets").get<uint32_t>();
        const auto block = entry.at("block_bytes").get<size_t>();
        // With less memory than before, the old division may not work any more.
        if (buckets < 1 || block < 8192 || (buckets + 2) * block > job.plan.writer_bytes ||
            6 * block > job.plan.sorter_bytes) {
          return false;
        }
        job.plan.buckets = buckets;
        job.plan.block_bytes = block;
        scattered.buckets.assign(buckets, Bucket());
      } else if (kind == "ranges") {
        ApplyScatterEntry(entry, scattered);
      } else if (kind == "output") {
        resumed.output = entry.at("output");
        resumed.next_bucket = entry.at("next_bucket").get<uint32_t>();
      }
    }
    if (resumed.output && !ShuffleOutput::CanResume(output, *resumed.output)) return false;
  } catch (const std::exception&) {
    return false;
  }
  if (BytesOf(scratch_path) < scattered.allocated) return false;
  return std::find(scattered.done.begin(), scattered.done.end(), true) != scattered.done.end();
}

}  // namespace

absl::Status ShuffleThroughScratch(ShuffleJob& job, ShuffleOutputOptions output_options, Journal* journal,
                                   const std::string& state_directory) {
  Scattered scattered;
  scattered.done.assign(job.ranges.size(), false);
  Resumed resumed;
  const MemoryPlan fresh_plan = job.plan;
  const std::string scratch_path = journal != nullptr ? state_directory + "/scratch" : "";
  if (journal != nullptr) {
    const std::vector<nlohmann::json> entries = journal->TakeEntries();
    job.report.resumed = TakeUp(entries, scratch_path, output_options, job, scattered, resumed);
    if (!job.report.resumed) {
      CAIRN_RETURN_IF_ERROR(journal->BeginAnew(entries.front()));
      ShuffleOutput::RemovePartials(output_options);
      unlink(scratch_path.c_str());
      job.plan = fresh_plan;
      scattered = Scattered();
      scattered.done.assign(job.ranges.size(), false);
      resumed = Resumed();
    }
    job.found.resumed = job.report.resumed;
    job.found.bytes_read = scattered.seen.bytes + scattered.seen.lines;
    job.found.all_read = std::find(scattered.done.begin(), scattered.done.end(), false) == scattered.done.end();
  }
  scattered.buckets.resize(job.plan.buckets);
  job.report.buckets = job.plan.buckets;

  ScratchFile::Options scratch_options;
  scratch_options.direct = job.options.direct;
  if (journal != nullptr) {
    scratch_options.path = scratch_path;
    scratch_options.resume_at = scattered.allocated;
  }
  const std::string& directory = journal != nullptr ? state_directory : job.options.temp_dir;
  CAIRN_ASSIGN_OR_RETURN(auto scratch, ScratchFile::Create(directory, scratch_options));

  std::unique_ptr<ShuffleOutput> output;
  if (resumed.output) {
    CAIRN_ASSIGN_OR_RETURN(output, ShuffleOutput::Resume(output_options, *resumed.output));
  } else {
    CAIRN_ASSIGN_OR_RETURN(output, ShuffleOutput::Create(output_options));
  }
  if (journal != nullptr) {
    job.found.bytes_written = output->lines().bytes + output->lines().lines;
    if (job.options.found) job.options.found(job.found);
    output->Keep();
    if (!job.report.resumed) {
      CAIRN_RETURN_IF_ERROR(
          journal->Append({{"kind", "plan"}, {"buckets", job.plan.buckets}, {"block_bytes", job.plan.block_bytes}}));
    }
  }

  job.progress->pass = 1;
  CAIRN_RETURN_IF_ERROR(Scatter(job, *scratch, journal, scattered));
  job.report.scratch_bytes = scratch->allocated();
  output->SetTotalLines(scattered.seen.lines);
  job.progress->bytes_total = scattered.seen.bytes + scattered.seen.lines;
  job.progress->bytes_written = output->lines().bytes + output->lines().lines;
  job.progress->pass = 2;
  CAIRN_RETURN_IF_ERROR(Gatherer(job, *scratch, journal, scattered, *output, resumed.next_bucket).Run());
  job.report.direct_scratch = scratch->direct();
  CAIRN_RETURN_IF_ERROR(output->Finish());
  CAIRN_RETURN_IF_ERROR(CheckMultisets(scattered.seen, output->lines()));
  if (job.Stopped()) return MakeError(Reason::kInterrupted, "interrupted");
  CAIRN_RETURN_IF_ERROR(output->Commit());
  job.report.lines = output->lines();
  job.report.outputs = output->paths();
  job.report.output_bytes = output->file_bytes();
  job.report.direct_output = output->direct();
  return absl::OkStatus();
}

absl::Status CheckMultisets(const LineMultiset& read, const LineMultiset& written) {
  if (read == written) return absl::OkStatus();
  return MakeError(Reason::kChecksumMismatch,
                   absl::StrCat("the lines written are not those read: ", read.lines, " lines of ", read.bytes,
                                " bytes were read, ", written.lines, " of ", written.bytes,
                                " would be written. Did an input change meanwhile, or is a disk damaged?"));
}

}  // namespace cairn::corpus
