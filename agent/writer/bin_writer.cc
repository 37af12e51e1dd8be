#include "agent/writer/bin_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/writer/item_checksum.h"
#include "common/base/crc32c.h"
#include "common/base/mutex.h"
#include "common/file/errno_error.h"
#include "common/file/retry.h"
#include "common/format/safetensors_header.h"
#include "common/resources/aligned_buffer.h"
#include "common/resources/memory.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/storage/attempt_owner.h"

namespace cairn {
namespace {

constexpr uint64_t kAlign = kDataAlignment;

uint64_t Padded(uint64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

// One file while it is written.
class BinFile {
 public:
  BinFile(PosixStorage& storage, const BinWriteJob& job, const BinWriterOptions& options, const ImageFile& file,
          int index)
      : storage_(storage),
        job_(job),
        options_(options),
        file_(file),
        index_(index),
        checksummer_(Begins()),
        // The slab holds the files as they will be.
        contiguous_(job.staged == job.target),
        final_path_(absl::StrCat(job.directory, "/", file.name, ".safetensors")),
        partial_path_(absl::StrCat(job.directory, "/", file.name, ".partial")),
        chunks_((Padded(file.data_bytes) + options.chunk_bytes - 1) / options.chunk_bytes),
        moves_in_(ChunksMovedIn()),
        fragments_(chunks_),
        left_(chunks_) {
    for (uint64_t chunk = 0; chunk < chunks_; ++chunk) {
      if (checked_apart(chunk)) ++left_;
    }
  }

  int index() const { return index_; }
  uint64_t chunks() const { return chunks_; }
  bool buffered() const { return buffered_; }

  // Makes the file with room for all of it, so that a full disk is found before anything is written, and finds out how
  // it may be written, before several threads do. A file that stands there is somebody's, and an error.
  absl::Status Open() {
    // Without O_DIRECT: a file system may make the file and then refuse the flag.
    CAIRN_ASSIGN_OR_RETURN(fd_, storage_.OpenFile(partial_path_, O_WRONLY | O_CREAT | O_EXCL));
    made_partial_ = true;
    const off_t bytes = static_cast<off_t>(Padded(file_.bytes()));
    while (fallocate(fd_.get(), 0, 0, bytes) != 0) {
      if (errno == EINTR) continue;
      if (errno == EOPNOTSUPP || errno == ENOSYS) break;
      return Failed(errno, "allocate", absl::StrCat(bytes, " bytes"));
    }
    if (!options_.direct || fcntl(fd_.get(), F_SETFL, fcntl(fd_.get(), F_GETFL) | O_DIRECT) != 0) {
      buffered_ = true;
      return absl::OkStatus();
    }
    // Some take the flag and refuse the write. The header comes here last.
    const AlignedBuffer zeros(kAlign);
    return WriteAt(0, zeros.data(), kAlign);
  }

  // Writes chunk `number`. True for the caller that did the last thing and must now call Finish. Thread-safe.
  absl::StatusOr<bool> WriteChunk(uint64_t number, AlignedBuffer& scratch) {
    const uint64_t begin = number * options_.chunk_bytes;
    const uint64_t size = std::min(options_.chunk_bytes, Padded(file_.data_bytes) - begin);
    char* const place = job_.slab + file_.slab_offset + file_.header_bytes + begin;
    const char* bytes = place;
    if (!contiguous_) {
      if (scratch.size() == 0) scratch = AlignedBuffer(options_.chunk_bytes);
      CAIRN_RETURN_IF_ERROR(Gather(begin, size, scratch.data(), /*moved_only=*/false));
      bytes = scratch.data();
    } else if (moves_in_[number]) {
      CAIRN_RETURN_IF_ERROR(Gather(begin, size, place, /*moved_only=*/true));
    }
    if (!checked_apart(number)) fragments_[number] = checksummer_.Touch(begin, bytes, size);
    CAIRN_RETURN_IF_ERROR(WriteAt(file_.header_bytes + begin, bytes, size));
    return left_.fetch_sub(1) == 1;
  }

  // True if the checksums of a chunk are computed apart from its writing, so that the disk never waits for them: the
  // memory stays as it is, so the order does not matter.
  bool checked_apart(uint64_t number) const { return contiguous_ && !moves_in_[number]; }
  // Computes the checksums of a chunk; returns as WriteChunk. Thread-safe.
  bool CheckChunk(uint64_t number) {
    const uint64_t begin = number * options_.chunk_bytes;
    const uint64_t size = std::min(options_.chunk_bytes, Padded(file_.data_bytes) - begin);
    fragments_[number] = checksummer_.Touch(begin, job_.slab + file_.slab_offset + file_.header_bytes + begin, size);
    return left_.fetch_sub(1) == 1;
  }

  // The header, which needs all checksums; then the file is made durable and gets its name.
  absl::StatusOr<v1::FileResult> Finish() {
    std::vector<ItemChecksums> checksums = checksummer_.Combine(fragments_);
    std::vector<StoredItem> items;
    items.reserve(file_.item.size());
    v1::FileResult result;
    const RankLayout& layout = *job_.target->layout;
    for (size_t i = 0; i < file_.item.size(); ++i) {
      const uint32_t number = file_.item[i];
      items.push_back(job_.target->ItemAt(number));
      result.add_item_checksums(checksums[i].crc32c);
      if (number < layout.shard_count || job_.target->IsMovedIn(number)) continue;
      checksums[i].object_bytes = job_.object_bytes[number - layout.shard_count];
      result.add_object_sizes(checksums[i].object_bytes);
    }
    const SaveImage& target = *job_.target;
    const BinIdentity identity = {job_.job,          job_.step,         job_.attempt, static_cast<int>(target.rank),
                                  target.world_size, target.total_files};
    const std::string header = RenderHeader(items, checksums, identity, AliasesIn(target, static_cast<size_t>(index_)));
    if (header.size() != file_.header_bytes) {
      return MakeError(Reason::kInternal, absl::StrCat(final_path_, ": the header has ", header.size(),
                                                       " bytes, planned were ", file_.header_bytes));
    }
    result.set_header_crc32c(Crc32c(header.data(), header.size()));
    result.set_file_bytes(file_.bytes());
    AlignedBuffer buffer(header.size());
    std::memcpy(buffer.data(), header.data(), header.size());
    CAIRN_RETURN_IF_ERROR(WriteAt(0, buffer.data(), header.size()));
    if (ftruncate(fd_.get(), static_cast<off_t>(file_.bytes())) != 0) return Failed(errno, "truncate", "");
    if (Fsync(fd_.get()) != 0) return Failed(errno, "fsync", absl::StrCat(file_.bytes(), " bytes"));
    fd_ = UniqueFd();
    const PosixStorage::PutResult renamed = storage_.Rename(partial_path_, final_path_);
    made_final_ = renamed.put.ok() ? *renamed.put == PosixStorage::Put::kCreated : renamed.in_doubt;
    CAIRN_RETURN_IF_ERROR(renamed.put.status());
    if (*renamed.put == PosixStorage::Put::kExists) {
      return ErrnoError(EEXIST, "rename", absl::StrCat(storage_.root(), "/", final_path_));
    }
    return result;
  }

  // Gives its space back; nobody else's file is touched.
  absl::Status Remove() {
    fd_ = UniqueFd();
    absl::Status partial, complete;
    if (made_partial_) partial = storage_.RemoveAll(partial_path_);
    if (made_final_) complete = storage_.RemoveAll(final_path_);
    return partial.ok() ? complete : partial;
  }

 private:
  std::vector<uint64_t> Begins() const {
    std::vector<uint64_t> begins = {0};
    for (uint32_t number : file_.item) begins.push_back(begins.back() + job_.target->ItemAt(number).bytes());
    return begins;
  }

  // By chunk: whether bytes of other ranks' shards stand in it.
  std::vector<bool> ChunksMovedIn() const {
    std::vector<bool> moved(chunks_);
    uint64_t begin = 0;
    for (uint32_t number : file_.item) {
      const uint64_t end = begin + job_.target->ItemAt(number).bytes();
      if (job_.target->IsMovedIn(number) && begin < end) {
        for (uint64_t chunk = begin / options_.chunk_bytes; chunk * options_.chunk_bytes < end; ++chunk) {
          moved[chunk] = true;
        }
      }
      begin = end;
    }
    return moved;
  }

  // data[begin, begin + size) of the target, from where the items lie in the staged image, and from other ranks; with
  // `moved_only` only the latter.
  absl::Status Gather(uint64_t begin, uint64_t size, char* to, bool moved_only) const {
    if (!moved_only) std::memset(to, 0, size);
    uint64_t item_begin = 0;
    for (uint32_t number : file_.item) {
      const uint64_t item_bytes = job_.target->ItemAt(number).bytes();
      const uint64_t from = std::max(begin, item_begin);
      const uint64_t until = std::min(begin + size, item_begin + item_bytes);
      if (from < until && job_.target->IsMovedIn(number)) {
        CAIRN_RETURN_IF_ERROR(job_.fetch_moved(number - job_.target->layout->items.size(), from - item_begin,
                                               until - from, to + (from - begin)));
      } else if (from < until && !moved_only) {
        std::memcpy(to + (from - begin), job_.slab + job_.staged->slab_offset[number] + (from - item_begin),
                    until - from);
      }
      item_begin += item_bytes;
      if (item_begin >= begin + size) break;
    }
    return absl::OkStatus();
  }

  absl::Status WriteAt(uint64_t offset, const char* bytes, uint64_t size) {
    uint64_t done = 0;
    while (done < size) {
      // Before the write: another thread may change it meanwhile.
      const bool direct = !buffered_;
      const ssize_t written =
          options_.pwrite ? options_.pwrite(fd_.get(), bytes + done, size - done, static_cast<off_t>(offset + done))
                          : ::pwrite(fd_.get(), bytes + done, size - done, static_cast<off_t>(offset + done));
      if (written < 0) {
        if (errno == EINTR) continue;
        if (errno == EINVAL && direct) {
          // Refused: this file goes through the page cache, and whatever is under way is done again.
          if (fcntl(fd_.get(), F_SETFL, fcntl(fd_.get(), F_GETFL) & ~O_DIRECT) == 0) {
            buffered_ = true;
            continue;
          }
          errno = EINVAL;
        }
        return Failed(errno, "write", absl::StrCat(size - done, " bytes at ", offset + done));
      }
      if (written == 0) return Failed(ENOSPC, "write", absl::StrCat(size - done, " bytes at ", offset + done));
      done += static_cast<uint64_t>(written);
      if (done < size) done = done / kAlign * kAlign;  // a direct write goes on at a whole block
    }
    return absl::OkStatus();
  }

  absl::Status Failed(int error, std::string_view operation, const std::string& what) const {
    const std::string path = absl::StrCat(storage_.root(), "/", partial_path_);
    const absl::Status status = ErrnoError(error, operation, path);
    return what.empty() ? status : Annotate(status, what);
  }

  PosixStorage& storage_;
  const BinWriteJob& job_;
  const BinWriterOptions& options_;
  const ImageFile& file_;
  const int index_;
  const ItemChecksummer checksummer_;
  const bool contiguous_;
  const std::string final_path_;
  const std::string partial_path_;
  const uint64_t chunks_;
  const std::vector<bool> moves_in_;  // by chunk
  UniqueFd fd_;
  // What stands under these names was made here.
  bool made_partial_ = false;
  bool made_final_ = false;
  std::atomic<bool> buffered_ = false;
  // By chunk; each is written by the thread that has the chunk, and read after the last one is done.
  std::vector<std::vector<ItemChecksummer::Fragment>> fragments_;
  std::atomic<uint64_t> left_;  // chunks to write, and to check where that is done apart
};

// Zeroes what the trainer leaves undefined: behind each object in its slot, and behind the data of each file.
void ZeroRests(const BinWriteJob& job) {
  const RankLayout& layout = *job.staged->layout;
  for (size_t i = 0; i < layout.object_count(); ++i) {
    const uint64_t offset = job.staged->slab_offset[layout.shard_count + i];
    if (offset == SaveImage::kNotStaged) continue;
    const uint64_t slot = layout.items[layout.shard_count + i].bytes();
    std::memset(job.slab + offset + job.object_bytes[i], 0, slot - job.object_bytes[i]);
  }
  for (const ImageFile& file : job.staged->file) {
    std::memset(job.slab + file.slab_offset + file.bytes(), 0, Padded(file.bytes()) - file.bytes());
  }
}

class Run {
 public:
  Run(PosixStorage& storage, const BinWriteJob& job, const BinWriterOptions& options, const std::atomic<bool>& stop,
      std::atomic<uint64_t>& bytes_done)
      : storage_(storage), job_(job), options_(options), stop_(stop), bytes_done_(bytes_done) {
    for (const ImageFile& file : job.target->file) {
      files_.push_back(std::make_unique<BinFile>(storage, job, options, file, static_cast<int>(files_.size())));
    }
    outcome_.result.mutable_files()->Reserve(static_cast<int>(files_.size()));
    for (size_t i = 0; i < files_.size(); ++i) outcome_.result.add_files();
  }

  absl::StatusOr<BinWriteOutcome> Go() {
    absl::Status status = CheckAttemptOwner(storage_, job_.directory, job_.nonce);
    if (status.ok()) {
      ZeroRests(job_);
      std::vector<std::thread> threads;
      threads.reserve(static_cast<size_t>(options_.io_threads));
      for (int i = 0; i < options_.io_threads; ++i) {
        auto thread = StartThread(absl::StrCat("to write ", job_.directory), [this] { Work(true); });
        if (thread.ok()) {
          threads.push_back(*std::move(thread));
          continue;
        }
        MutexLock lock(mutex_);
        if (threads.empty()) error_ = thread.status();
        break;  // fewer are only slower
      }
      Work(false);
      for (std::thread& thread : threads) thread.join();
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
    BinFile* file = nullptr;
    uint64_t chunk = 0;
    bool check = false;
  };
  // The chunks of all files, one after the other.
  struct Cursor {
    size_t file = 0;
    uint64_t chunk = 0;
  };

  // What is next: with `write` a write if there is one left, else a check. No file: nothing is.
  absl::StatusOr<Task> Next(bool write) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (write && to_write_.file < files_.size()) {
      BinFile& file = *files_[to_write_.file];
      if (to_write_.chunk == 0) CAIRN_RETURN_IF_ERROR(file.Open());
      const Task task = {&file, to_write_.chunk, false};
      if (++to_write_.chunk >= file.chunks()) to_write_ = {to_write_.file + 1, 0};
      return task;
    }
    while (to_check_.file < files_.size()) {
      BinFile& file = *files_[to_check_.file];
      while (to_check_.chunk < file.chunks()) {
        const uint64_t chunk = to_check_.chunk++;
        if (file.checked_apart(chunk)) return Task{&file, chunk, true};
      }
      to_check_ = {to_check_.file + 1, 0};
    }
    return Task();
  }

  // Takes tasks until there is none.
  void Work(bool write) {
    AlignedBuffer scratch;
    while (true) {
      Task task;
      {
        MutexLock lock(mutex_);
        if (error_.ok() && stop_) {
          error_ = MakeError(Reason::kSaveCancelled, absl::StrCat("writing ", job_.directory, " was stopped"));
        }
        if (!error_.ok()) return;
        const auto next = WithMemory(absl::StrCat("to write ", job_.directory), [&] { return Next(write); });
        if (!next.ok()) {
          error_ = next.status();
          return;
        }
        task = *next;
      }
      if (task.file == nullptr) return;
      const absl::Status status =
          WithMemory(absl::StrCat("to write ", job_.directory), [&] { return Do(task, scratch); });
      if (!status.ok()) {
        MutexLock lock(mutex_);
        if (error_.ok()) error_ = status;
        return;
      }
    }
  }

  absl::Status Do(const Task& task, AlignedBuffer& scratch) {
    BinFile& file = *task.file;
    bool last = true;  // a file without data has no chunk
    if (task.check) {
      last = file.CheckChunk(task.chunk);
    } else if (task.chunk < file.chunks()) {
      CAIRN_ASSIGN_OR_RETURN(last, file.WriteChunk(task.chunk, scratch));
      const uint64_t data = job_.target->file[static_cast<size_t>(file.index())].data_bytes;
      const uint64_t begin = task.chunk * options_.chunk_bytes;
      bytes_done_ += std::min(options_.chunk_bytes, data - std::min(data, begin));
    }
    if (!last) return absl::OkStatus();
    CAIRN_ASSIGN_OR_RETURN(v1::FileResult result, file.Finish());
    bytes_done_ += job_.target->file[static_cast<size_t>(file.index())].header_bytes;
    MutexLock lock(mutex_);
    *outcome_.result.mutable_files(file.index()) = std::move(result);
    return absl::OkStatus();
  }

  PosixStorage& storage_;
  const BinWriteJob& job_;
  const BinWriterOptions& options_;
  const std::atomic<bool>& stop_;
  std::atomic<uint64_t>& bytes_done_;
  std::vector<std::unique_ptr<BinFile>> files_;

  Mutex mutex_;
  Cursor to_write_ ABSL_GUARDED_BY(mutex_);
  Cursor to_check_ ABSL_GUARDED_BY(mutex_);
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  BinWriteOutcome outcome_;
};

}  // namespace

absl::StatusOr<BinWriteOutcome> WriteBins(PosixStorage& storage, const BinWriteJob& job,
                                          const BinWriterOptions& options, const std::atomic<bool>& stop,
                                          std::atomic<uint64_t>& bytes_done) {
  return Run(storage, job, options, stop, bytes_done).Go();
}

}  // namespace cairn
