#include "corpus/bpe/word_counter.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/resources/memory.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/bpe/count_record.h"
#include "corpus/bpe/word_runs.h"
#include "corpus/bpe/word_table.h"

namespace cairn::corpus {
namespace {

constexpr size_t kEnds = 1024;
constexpr uint64_t kBlocksAhead = 64;
constexpr std::string_view kWhat = "to count words; fewer threads need less";

// Does one thread's part of the count.
class Worker {
 public:
  Worker(const CountOptions& options, const Pretokenizer& pretokenizer, const SpecialMatcher& specials)
      : options_(options), specials_(specials), splitter_(pretokenizer), texts_(options.lines) {}

  // Adds the bad lines to `bad` if they are left out.
  absl::Status CountBlock(TextBlock& block, BadLines& bad) {
    const absl::Status status = CountUnits(block, bad);
    table_.Flush();
    return status;
  }

  WordTable& table() { return table_; }

 private:
  absl::Status CountUnits(TextBlock& block, BadLines& bad) {
    switch (options_.blocks.unit) {
      case TextUnit::kFile:
        return CountText(block.bytes, End(block));
      case TextUnit::kLine:
      case TextUnit::kJson:
        return CountLines(block, bad);
    }
    return absl::OkStatus();
  }

  static const char* End(const TextBlock& block) { return block.bytes.data() + block.bytes.size(); }

  // Special tokens cut the text and are not counted.
  absl::Status CountText(std::string_view text, const char* readable_end) {
    size_t from = 0;
    while (from < text.size()) {
      const SpecialMatcher::Match special = specials_.Find(text, from);
      const size_t until = special.found() ? special.begin : text.size();
      CAIRN_RETURN_IF_ERROR(CountPiece(text.substr(from, until - from), readable_end));
      from = special.found() ? special.end : until;
    }
    return absl::OkStatus();
  }

  absl::Status CountPiece(std::string_view piece, const char* readable_end) {
    for (size_t from = 0; from < piece.size();) {
      CAIRN_ASSIGN_OR_RETURN(const size_t count, splitter_.Split(piece, from, ends_));
      table_.AddWords(piece, from, std::span(ends_).first(count), readable_end);
      from = ends_[count - 1];
    }
    return absl::OkStatus();
  }

  absl::Status CountLines(TextBlock& block, BadLines& bad) {
    const bool json = options_.blocks.unit == TextUnit::kJson;
    return texts_.ForEach(block, options_.blocks.inputs[block.input], options_.bad_lines ? &bad : nullptr,
                          [&](std::string_view text) -> absl::Status {
                            if (!json) return CountText(text, End(block));
                            const absl::Status status = CountText(text, text.data() + text.size());
                            table_.Flush();  // the next line takes the place of this text
                            return status;
                          });
  }

  const CountOptions& options_;
  const SpecialMatcher& specials_;
  Splitter splitter_;
  WordTable table_;
  std::array<uint32_t, kEnds> ends_;
  LineTexts texts_;
};

// Does the whole count. Threads work until the inputs end, a checkpoint is due or memory is short; then the tables are
// spilled and the threads go on.
class Counter {
 public:
  Counter(const CountOptions& options, const Pretokenizer& pretokenizer, const SpecialMatcher& specials)
      : options_(options), reader_(options.blocks, pretokenizer, specials) {
    for (int i = 0; i < options.threads; ++i) {
      workers_.push_back(std::make_unique<Worker>(options, pretokenizer, specials));
    }
  }

  ~Counter() {
    if (options_.resume) return;
    for (const WordRun& run : runs_) unlink(run.path.c_str());
  }

  absl::StatusOr<CountSummary> Run(const WordVisitor& visit) {
    if (options_.resume) CAIRN_RETURN_IF_ERROR(Resume());
    while (true) {
      CAIRN_RETURN_IF_ERROR(Work());
      if (finished_ && runs_.empty() && !options_.sorted) break;
      CAIRN_RETURN_IF_ERROR(Spill());
      if (finished_) break;
    }
    return Deliver(visit);
  }

 private:
  absl::Status Resume() {
    fingerprint_ = CountFingerprint(PathsOf(options_.blocks.inputs), options_.settings);
    CAIRN_ASSIGN_OR_RETURN(auto record, LoadCountRecord(options_.directory));
    CountResumption found;
    if (record.has_value()) {
      found = {.found = true, .inputs_done = record->position.input, .offset = record->position.offset};
    }
    if (record.has_value() && record->fingerprint != fingerprint_) {
      return MakeError(Reason::kBadRequest, absl::StrCat(CountRecordPath(options_.directory),
                                                         " was made from other inputs or with other options; remove ",
                                                         options_.directory, " to begin anew"));
    }
    if (options_.resumption) options_.resumption(found);
    if (!found.found) return absl::OkStatus();
    runs_ = std::move(record->runs);
    summary_.resumed = true;
    return reader_.Seek(std::move(record->position));
  }

  int Threads() const { return static_cast<int>(workers_.size()); }

  // Works until the inputs end or tables must be spilled.
  absl::Status Work() {
    stop_ = false;
    epoch_begin_ = reader_.file_bytes_read();
    // Where the system refuses threads, the other workers take their blocks.
    std::atomic<size_t> next_worker = 0;
    RunOnThreads(Threads(), [&] {
      const absl::Status status = WithMemory(kWhat, [&] {
        WorkOn(*workers_[next_worker++]);
        return absl::OkStatus();
      });
      if (status.ok()) return;
      MutexLock lock(mutex_);
      Fail(status);
    });
    MutexLock lock(mutex_);
    return error_;
  }

  void WorkOn(Worker& worker) {
    TextBlock block;
    while (!stop_) {
      uint64_t place = 0;
      {
        MutexLock lock(mutex_);
        if (stop_) return;
        auto next = reader_.Next(std::move(block));
        if (!next.ok()) return Fail(next.status());
        block = *std::move(next);
        const uint64_t read = reader_.file_bytes_read();
        if (options_.progress && !options_.progress(read)) {
          return Fail(MakeError(Reason::kInterrupted, "interrupted while words were counted"));
        }
        if (block.at_end()) {
          finished_ = stop_ = true;
          return;
        }
        if (options_.resume && read - epoch_begin_ >= options_.checkpoint_bytes) stop_ = true;
        place = taken_++;
      }
      BadLines bad;
      absl::Status status = worker.CountBlock(block, bad);
      if (status.ok() && options_.bad_lines) status = Describe(place, block.input, std::move(bad));
      if (!status.ok()) {
        MutexLock lock(mutex_);
        return Fail(status);
      }
      const WordTable& table = worker.table();
      const bool too_large =
          options_.memory_bytes > 0 && table.bytes_when_growing() > options_.memory_bytes / workers_.size();
      if (too_large || table.full()) stop_ = true;
    }
  }

  void Fail(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (error_.ok()) error_ = status;
    stop_ = true;
    described_one_.NotifyAll();
  }

  // Describes the bad lines of the block `place` when those of the blocks before are described. A block that is far
  // ahead waits, so that few are kept.
  absl::Status Describe(uint64_t place, size_t input, BadLines bad) {
    MutexLock lock(mutex_);
    while (place - described_ > kBlocksAhead && error_.ok()) described_one_.Wait(mutex_);
    if (!error_.ok()) return absl::OkStatus();
    undescribed_.emplace(place, std::pair(input, std::move(bad)));
    for (auto due = undescribed_.begin(); due != undescribed_.end() && due->first == described_;
         due = undescribed_.erase(due), ++described_) {
      const auto& [of, lines] = due->second;
      if (lines.size() == 0) continue;
      summary_.bad_lines += lines.size();
      CAIRN_RETURN_IF_ERROR(options_.bad_lines(options_.blocks.inputs[of].name(), lines));
    }
    described_one_.NotifyAll();
    return absl::OkStatus();
  }

  // Writes every table as a run and, with `resume`, records that.
  absl::Status Spill() {
    summary_.spilled = true;
    const size_t first = runs_.size();
    runs_.resize(first + workers_.size());
    std::vector<absl::Status> statuses(workers_.size());
    const auto write = [&](size_t i) {
      // A name is never used again, so an existing record never points to a file that is being replaced.
      const std::string path = absl::StrCat(options_.directory, "/run-", getpid(), "-", first + i);
      auto run = WithMemory(kWhat, [&] { return WriteRun(workers_[i]->table(), path); });
      workers_[i]->table().Clear();
      statuses[i] = run.status();
      runs_[first + i] = run.ok() ? *std::move(run) : WordRun{path, 0, 0};
    };
    std::atomic<size_t> next = 0;
    RunOnThreads(Threads(), [&] {
      for (size_t i = next++; i < workers_.size(); i = next++) write(i);
    });
    for (const absl::Status& status : statuses) CAIRN_RETURN_IF_ERROR(status);
    if (!options_.resume) return absl::OkStatus();
    return SaveCountRecord(options_.directory, {fingerprint_, runs_, reader_.Tell()});
  }

  absl::StatusOr<CountSummary> Deliver(const WordVisitor& visit) {
    summary_.file_bytes = reader_.file_bytes_read();
    if (!runs_.empty()) {
      size_t part = 0;
      CAIRN_RETURN_IF_ERROR(MergeRuns(runs_, [&](std::string_view word, uint64_t times) {
        ++summary_.distinct_words;
        part = (part + 1) % options_.parts;
        return visit(part, word, times);
      }));
      return summary_;
    }
    std::vector<absl::Status> statuses(options_.parts);
    std::vector<uint64_t> words(options_.parts);
    std::atomic<size_t> next_part = 0;
    const auto deliver = [&] {
      for (size_t part = next_part++; part < options_.parts; part = next_part++) {
        statuses[part] = WithMemory(kWhat, [&] { return DeliverPart(part, visit, words[part]); });
      }
    };
    RunOnThreads(static_cast<int>(std::min(workers_.size(), options_.parts)), deliver);
    for (const absl::Status& status : statuses) CAIRN_RETURN_IF_ERROR(status);
    for (const uint64_t count : words) summary_.distinct_words += count;
    return summary_;
  }

  // Delivers a part of the words of all tables.
  absl::Status DeliverPart(size_t part, const WordVisitor& visit, uint64_t& words) {
    // Each table in turn takes over what it shares with later ones, so every word is then in only one table.
    for (size_t i = 0; i < workers_.size(); ++i) {
      for (size_t j = i + 1; j < workers_.size(); ++j)
        workers_[i]->table().TakeShared(part, options_.parts, workers_[j]->table());
    }
    uint64_t bytes = 0;
    for (const auto& worker : workers_) {
      worker->table().ForEach(part, options_.parts,
                              [&](std::string_view word, uint64_t) { ++words, bytes += word.size(); });
    }
    if (options_.expect) options_.expect(part, words, bytes);
    absl::Status status;
    for (const auto& worker : workers_) {
      worker->table().ForEach(part, options_.parts, [&](std::string_view word, uint64_t times) {
        if (status.ok()) status = visit(part, word, times);
      });
    }
    return status;
  }

  const CountOptions& options_;
  std::string fingerprint_;
  CountSummary summary_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<WordRun> runs_;
  bool finished_ = false;  // written under the lock, and read when no thread runs
  uint64_t epoch_begin_ = 0;
  std::atomic<bool> stop_ = false;

  Mutex mutex_;
  BlockReader reader_;  // threads use it under mutex_
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  uint64_t taken_ ABSL_GUARDED_BY(mutex_) = 0;      // blocks
  uint64_t described_ ABSL_GUARDED_BY(mutex_) = 0;  // of them
  std::map<uint64_t, std::pair<size_t, BadLines>> undescribed_ ABSL_GUARDED_BY(mutex_);
  CondVar described_one_;
};

}  // namespace

absl::StatusOr<CountSummary> CountWords(const CountOptions& options, const Pretokenizer& pretokenizer,
                                        const SpecialMatcher& specials, const WordVisitor& visit) {
  Counter counter(options, pretokenizer, specials);
  return counter.Run(visit);
}

}  // namespace cairn::corpus
