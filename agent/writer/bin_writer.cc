#include "agent/writer/bin_writer.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/call_once.h"
#include "absl/strings/str_cat.h"
#include "agent/writer/partial_bin.h"
#include "agent/writer/priority.h"
#include "common/base/mutex.h"
#include "common/resources/aligned_buffer.h"
#include "common/resources/memory.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/write/attempt_owner.h"

namespace cairn {
namespace {

// Whoever waits looks this often whether it is to stop.
constexpr absl::Duration kLook = absl::Milliseconds(20);

// Zeroes the bytes that the trainer leaves undefined behind each object in its slot.
void ZeroObjectRests(const BinWriteJob& job) {
  const std::vector<uint64_t>& object_bytes = job.staging->object_bytes();
  const RankLayout& layout = *job.staged->layout;
  for (size_t i = 0; i < layout.object_count(); ++i) {
    const uint64_t offset = job.staged->slab_offset[layout.shard_count + i];
    if (offset == SaveImage::kNotStaged) continue;
    const uint64_t slot = layout.items[layout.shard_count + i].bytes();
    std::memset(job.slab + offset + object_bytes[i], 0, slot - object_bytes[i]);
  }
}

// The same behind each file's data.
void ZeroFileRests(const BinWriteJob& job) {
  for (const ImageFile& file : job.staged->file) {
    std::memset(job.slab + file.slab_offset + file.bytes(), 0, PaddedToBlock(file.bytes()) - file.bytes());
  }
}

class Run {
 public:
  Run(Storage& storage, const BinWriteJob& job, const BinWriterOptions& options, const std::atomic<bool>& stop,
      std::atomic<uint64_t>& bytes_done)
      : storage_(storage), job_(job), options_(options), stop_(stop), bytes_done_(bytes_done) {
    for (const ImageFile& file : job.target->file) {
      files_.push_back(std::make_unique<PartialBin>(storage, job, options, file, static_cast<int>(files_.size())));
    }
    outcome_.result.mutable_files()->Reserve(static_cast<int>(files_.size()));
    for (size_t i = 0; i < files_.size(); ++i) outcome_.result.add_files();
  }

  absl::StatusOr<BinWriteOutcome> Go() {
    absl::Status status = CheckAttemptOwner(storage_, job_.directory, job_.nonce);
    if (status.ok()) {
      ZeroFileRests(job_);
      std::atomic<int> begun = 0;  // one thread more than those that write checks from the begin on
      RunOnThreads(options_.io_threads + 1, [&] { Work(begun++ < options_.io_threads); });
      MutexLock lock(mutex_);
      status = error_;
    }
    if (!status.ok()) {
      for (const auto& file : files_) {
        if (const absl::Status removed = file->Remove(); !removed.ok()) {
          status = Annotate(status, absl::StrCat("(and its files could not be removed: ", removed.message(), ")"));
        }
      }
      return status;
    }
    outcome_.path = "direct";
    for (const auto& file : files_) {
      if (file->buffered()) outcome_.path = "buffered";
    }
    return std::move(outcome_);
  }

 private:
  struct Task {
    PartialBin* file = nullptr;
    uint64_t chunk = 0;
    bool check = false;
  };
  // A position in the sequence of all chunks of all files.
  struct Cursor {
    size_t file = 0;
    uint64_t chunk = 0;
  };

  // Returns the next task: if `write`, a write if one is left; else a check. Task::file is null if there is none.
  absl::StatusOr<Task> Next(bool write) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (write && to_write_.file < files_.size()) {
      PartialBin& file = *files_[to_write_.file];
      if (to_write_.chunk == 0) CAIRN_RETURN_IF_ERROR(file.Open(stop_));
      const Task task = {&file, to_write_.chunk, false};
      if (++to_write_.chunk >= file.chunks()) to_write_ = {to_write_.file + 1, 0};
      return task;
    }
    while (to_check_.file < files_.size()) {
      PartialBin& file = *files_[to_check_.file];
      while (to_check_.chunk < file.chunks()) {
        const uint64_t chunk = to_check_.chunk++;
        if (file.checked_apart(chunk)) return Task{&file, chunk, true};
      }
      to_check_ = {to_check_.file + 1, 0};
    }
    return Task();
  }

  void Work(bool write) {
    GiveWay();
    absl::Status status = WithMemory(absl::StrCat("to write ", job_.directory), [&] { return DoTasks(write); });
    MutexLock lock(mutex_);
    if (error_.ok()) error_ = std::move(status);
  }

  // Takes tasks until there is none.
  absl::Status DoTasks(bool write) {
    AlignedBuffer scratch;
    while (true) {
      Task task;
      {
        MutexLock lock(mutex_);
        if (!error_.ok()) return absl::OkStatus();
        if (stop_) return Stopped();
        CAIRN_ASSIGN_OR_RETURN(task, Next(write));
      }
      if (task.file == nullptr) return absl::OkStatus();
      CAIRN_ASSIGN_OR_RETURN(const bool staged, AwaitStaged(task));
      if (!staged) return absl::OkStatus();
      if (!task.check) CAIRN_RETURN_IF_ERROR(AwaitPace(task));
      CAIRN_RETURN_IF_ERROR(Do(task, scratch));
    }
  }

  // Waits until what the task needs is staged. Checksums wait for all: while the trainer copies, the cores are its own.
  // Returns false if another thread has met an error meanwhile.
  absl::StatusOr<bool> AwaitStaged(const Task& task) {
    const bool all = task.check || task.file->chunks() == 0;
    const uint64_t end = all ? StagingProgress::kAll : task.file->StagedBefore(task.chunk);
    while (!job_.staging->Await(end)) {
      if (stop_) return Stopped();
      MutexLock lock(mutex_);
      if (!error_.ok()) return false;
    }
    if (end == StagingProgress::kAll) absl::call_once(objects_zeroed_, ZeroObjectRests, job_);
    return true;
  }

  // Waits until the task may write. An error of another thread ends the wait: the next task is not taken.
  absl::Status AwaitPace(const Task& task) {
    if (options_.pace == nullptr) return absl::OkStatus();
    absl::Duration left = options_.pace->Take(task.file->ChunkBytes(task.chunk));
    MutexLock lock(mutex_);
    while (left > absl::ZeroDuration() && error_.ok()) {
      if (stop_) return Stopped();
      const absl::Duration pause = std::min(left, kLook);
      pause_.WaitFor(mutex_, pause);
      left -= pause;
    }
    return absl::OkStatus();
  }

  absl::Status Stopped() const {
    return MakeError(Reason::kSaveCancelled, absl::StrCat("writing ", job_.directory, " was stopped"));
  }

  absl::Status Do(const Task& task, AlignedBuffer& scratch) {
    PartialBin& file = *task.file;
    bool last = true;  // a file without data has no chunk
    if (task.check) {
      last = file.CheckChunk(task.chunk);
    } else if (task.chunk < file.chunks()) {
      CAIRN_ASSIGN_OR_RETURN(last, file.WriteChunk(task.chunk, scratch));
      bytes_done_ += file.ChunkBytes(task.chunk);
    }
    if (!last) return absl::OkStatus();
    CAIRN_ASSIGN_OR_RETURN(v1::FileResult result, file.Finish());
    bytes_done_ += job_.target->file[static_cast<size_t>(file.index())].header_bytes;
    MutexLock lock(mutex_);
    *outcome_.result.mutable_files(file.index()) = std::move(result);
    return absl::OkStatus();
  }

  Storage& storage_;
  const BinWriteJob& job_;
  const BinWriterOptions& options_;
  const std::atomic<bool>& stop_;
  std::atomic<uint64_t>& bytes_done_;
  std::vector<std::unique_ptr<PartialBin>> files_;
  absl::once_flag objects_zeroed_;

  Mutex mutex_;
  CondVar pause_;  // nobody notifies it
  Cursor to_write_ ABSL_GUARDED_BY(mutex_);
  Cursor to_check_ ABSL_GUARDED_BY(mutex_);
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  BinWriteOutcome outcome_;
};

}  // namespace

absl::StatusOr<BinWriteOutcome> WriteBins(Storage& storage, const BinWriteJob& job, const BinWriterOptions& options,
                                          const std::atomic<bool>& stop, std::atomic<uint64_t>& bytes_done) {
  return Run(storage, job, options, stop, bytes_done).Go();
}

}  // namespace cairn
