#include "export/exporter.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/base/random_id.h"
#include "common/file/atomic_write.h"
#include "common/file/confined_path.h"
#include "common/file/errno_error.h"
#include "common/file/full_transfer.h"
#include "common/file/retry.h"
#include "common/resources/aligned_buffer.h"
#include "common/resources/memory.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/tensor/tiled_copy.h"
#include "export/item_reader.h"
#include "planner/load/overlap.h"

namespace cairn {
namespace {

// A thread reads this much at once. It is a multiple of the blocks of checksums.
constexpr uint64_t kChunkBytes = 8 * kChecksumBlockBytes;
constexpr uint64_t kMinMemory = uint64_t{64} << 20;
// Leaves room for headers, plans and stacks.
constexpr uint64_t kSpareMemory = uint64_t{16} << 20;

absl::StatusOr<AlignedBuffer> Allocate(uint64_t bytes) {
  return WithMemory(absl::StrCat("for a buffer of ", bytes, " bytes; lower --memory"),
                    [&]() -> absl::StatusOr<AlignedBuffer> { return AlignedBuffer(bytes); });
}

// The files that an export makes. Nothing of them is left unless Publish has succeeded.
class Output {
 public:
  explicit Output(std::string directory) : directory_(std::move(directory)) {}

  ~Output() {
    for (const auto& [temporary, name] : files_) unlinkat(fd_.get(), temporary.c_str(), 0);
    for (const std::string& name : published_) unlinkat(fd_.get(), name.c_str(), 0);
    if (made_directory_ && !done_) rmdir(directory_.c_str());
  }

  absl::Status Open() {
    if (RetryInterrupted([&] { return mkdir(directory_.c_str(), 0755); }) == 0) {
      made_directory_ = true;
    } else if (errno == ENOENT) {
      // The parent directory is not made too: otherwise, if a mount were missing, the export would fill the disk below
      // it.
      return MakeError(Reason::kBadRequest, absl::StrCat("the directory above ", directory_, " does not exist"),
                       {{"file", directory_}, {"next", "Make that directory, or correct --to."}});
    } else if (errno != EEXIST) {
      return ErrnoError(errno, "make", directory_);
    }
    fd_ = UniqueFd(open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd_.valid()) return ErrnoError(errno, "open", directory_);
    CAIRN_ASSIGN_OR_RETURN(const auto storage, PosixStorage::Open(directory_, false));
    CAIRN_ASSIGN_OR_RETURN(const auto entries, storage->List(""));
    for (const auto& [name, is_directory] : entries) {
      if ((!name.ends_with(".safetensors") && name != kPlainIndexName) || name.starts_with(".")) continue;
      return MakeError(Reason::kOutputExists,
                       absl::StrCat(directory_, " holds ", name, " already; export into an empty directory"),
                       {{"file", absl::StrCat(directory_, "/", name)}});
    }
    return absl::OkStatus();
  }

  // Makes a new file that will be `name`, and reserves its room.
  absl::StatusOr<UniqueFd> Create(const std::string& name, uint64_t bytes) {
    const std::string temporary = absl::StrCat(".tmp-export-", absl::Hex(RandomId(), absl::kZeroPad16), "-", name);
    UniqueFd fd = OpenIn(fd_.get(), temporary, O_WRONLY | O_CREAT | O_EXCL);
    if (!fd.valid()) return ErrnoError(errno, "create", Path(name));
    files_.emplace_back(temporary, name);
    const int error = bytes == 0 ? 0 : posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes));
    if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
      return Annotate(ErrnoError(error, "reserve", Path(name)), absl::StrCat(bytes, " bytes"));
    }
    return fd;
  }

  absl::Status Write(int fd, const std::string& name, uint64_t offset, std::string_view bytes) {
    const int error = WriteFullyAt(fd, bytes, offset);
    return error == 0 ? absl::OkStatus() : ErrnoError(error, "write", Path(name));
  }

  absl::Status Sync(int fd, const std::string& name) {
    return Fsync(fd) == 0 ? absl::OkStatus() : ErrnoError(errno, "fsync", Path(name));
  }

  // Names the files in the order in which they were created.
  absl::Status Publish() {
    while (!files_.empty()) {
      const auto& [temporary, name] = files_.front();
      // The name must not replace something that has come meanwhile.
      const int error = LinkNoReplace(fd_.get(), temporary, name);
      if (error == EEXIST) {
        return MakeError(Reason::kOutputExists, absl::StrCat(Path(name), " has come to be there meanwhile"),
                         {{"file", Path(name)}});
      }
      if (error != 0) return ErrnoError(error, "link", Path(name));
      unlinkat(fd_.get(), temporary.c_str(), 0);
      published_.push_back(name);
      // The files before the index must be durable before the index has its name.
      if (files_.size() <= 2) CAIRN_RETURN_IF_ERROR(SyncDirectory());
      files_.erase(files_.begin());
    }
    if (made_directory_) {
      const UniqueFd parent(openat(fd_.get(), "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      if (!parent.valid() || Fsync(parent.get()) != 0) return ErrnoError(errno, "fsync", directory_);
    }
    done_ = true;
    published_.clear();
    return absl::OkStatus();
  }

 private:
  std::string Path(const std::string& name) const { return absl::StrCat(directory_, "/", name); }

  absl::Status SyncDirectory() {
    return Fsync(fd_.get()) == 0 ? absl::OkStatus() : ErrnoError(errno, "fsync", directory_);
  }

  const std::string directory_;
  UniqueFd fd_;
  bool made_directory_ = false;
  bool done_ = false;
  std::vector<std::pair<std::string, std::string>> files_;  // temporary and final names, not published yet
  std::vector<std::string> published_;
};

// Elements [begin, end) of one tensor, which stand at `at` of the window.
struct WindowPiece {
  const ExportTensor* tensor;
  int64_t begin;
  int64_t end;
  uint64_t at;
};

class Exporter {
 public:
  Exporter(PosixStorage& storage, const Manifest& manifest, const ExportPlan& plan, Output& output,
           const WriteExportOptions& options)
      : manifest_(manifest), plan_(plan), output_(output), options_(options), reader_(storage, manifest) {}

  absl::Status Run() {
    const auto threads = static_cast<uint64_t>(std::max(options_.threads, 1));
    const uint64_t memory = std::max(options_.memory_bytes, kMinMemory);
    const uint64_t aside = kSpareMemory + threads * kChunkBytes;
    window_bytes_ = std::max(memory > aside ? memory - aside : 0, kMinMemory / 4) / 4096 * 4096;
    uint64_t largest = 0;
    for (const ExportFile& file : plan_.files) largest = std::max(largest, file.data_bytes);
    window_bytes_ = std::max<uint64_t>(std::min(window_bytes_, largest), 4096);
    CAIRN_ASSIGN_OR_RETURN(window_, Allocate(window_bytes_));
    for (uint64_t t = 0; t < threads; ++t) {
      CAIRN_ASSIGN_OR_RETURN(AlignedBuffer chunk, Allocate(kChunkBytes));
      chunks_.push_back(std::move(chunk));
    }
    for (const ExportFile& file : plan_.files) CAIRN_RETURN_IF_ERROR(WriteFile(file));
    CAIRN_ASSIGN_OR_RETURN(const UniqueFd index, output_.Create(std::string(kPlainIndexName), plan_.index.size()));
    const std::string name(kPlainIndexName);
    CAIRN_RETURN_IF_ERROR(output_.Write(index.get(), name, 0, plan_.index));
    return output_.Sync(index.get(), name);
  }

 private:
  // A part of a stored shard that goes to a piece of the window.
  struct Task {
    const ManifestShard* shard;
    uint64_t begin;
    uint64_t bytes;
    const std::vector<std::pair<Overlap, uint64_t>>* overlaps;  // with the place of their piece in the window
  };

  absl::Status WriteFile(const ExportFile& file) {
    CAIRN_ASSIGN_OR_RETURN(const UniqueFd fd, output_.Create(file.name, file.header.size() + file.data_bytes));
    CAIRN_RETURN_IF_ERROR(output_.Write(fd.get(), file.name, 0, file.header));
    std::vector<WindowPiece> pieces;
    uint64_t filled = 0, written = 0;
    const auto flush = [&]() -> absl::Status {
      CAIRN_RETURN_IF_ERROR(FillWindow(pieces));
      CAIRN_RETURN_IF_ERROR(output_.Write(fd.get(), file.name, file.header.size() + written, {window_.data(), filled}));
      written += filled;
      done_ += filled;
      if (options_.progress) options_.progress(done_);
      filled = 0;
      pieces.clear();
      return absl::OkStatus();
    };
    for (uint32_t number : file.tensors) {
      const ExportTensor& tensor = plan_.tensors[number];
      const int64_t elements = *ElementCount(tensor.plain.shape);
      const auto width = static_cast<uint64_t>(BytesOf(tensor.plain.dtype));
      // A tensor that fits is not cut, because a permuted one would then be read in several passes.
      const uint64_t bytes = static_cast<uint64_t>(elements) * width;
      if (filled > 0 && bytes > window_bytes_ - filled) CAIRN_RETURN_IF_ERROR(flush());
      for (int64_t begin = 0; begin < elements;) {
        const auto room = static_cast<int64_t>((window_bytes_ - filled) / width);
        const int64_t end = std::min(elements, begin + room);
        pieces.push_back({&tensor, begin, end, filled});
        filled += static_cast<uint64_t>(end - begin) * width;
        begin = end;
        if (begin < elements) CAIRN_RETURN_IF_ERROR(flush());
      }
    }
    if (filled > 0) CAIRN_RETURN_IF_ERROR(flush());
    return output_.Sync(fd.get(), file.name);
  }

  absl::Status FillWindow(const std::vector<WindowPiece>& pieces) {
    // The overlaps are grouped by shard, in the order of the files.
    std::map<std::tuple<uint32_t, uint64_t, uint32_t>, std::vector<std::pair<Overlap, uint64_t>>> by_shard;
    for (const WindowPiece& piece : pieces) {
      const Piece target{WholeBox(piece.tensor->plain.shape), FlatRange{piece.begin, piece.end}};
      const Box bounds = BoundsOf(target);
      for (const AxisMap& link : piece.tensor->links) {
        const auto source_bounds = link.SourceBounds(bounds);
        if (!source_bounds) continue;
        const ManifestTensor& tensor = manifest_.tensors[link.source];
        for (uint32_t s = tensor.first_shard; s < tensor.first_shard + tensor.shard_count; ++s) {
          const ManifestShard& shard = manifest_.shards[s];
          if (!Intersect(*source_bounds, manifest_.box_of(shard))) continue;
          Overlap overlap({manifest_.box_of(shard), manifest_.flat_range_of(shard)}, target, &link);
          if (overlap.empty()) continue;
          by_shard[{shard.file, shard.file_offset, s}].emplace_back(std::move(overlap), piece.at);
        }
      }
    }
    std::vector<Task> tasks;
    for (const auto& [key, overlaps] : by_shard) AddTasks(manifest_.shards[std::get<2>(key)], overlaps, tasks);
    return RunTasks(tasks);
  }

  // Adds the blocks of a shard that are needed; neighbours become one task.
  void AddTasks(const ManifestShard& shard, const std::vector<std::pair<Overlap, uint64_t>>& overlaps,
                std::vector<Task>& tasks) const {
    const auto width = static_cast<uint64_t>(BytesOf(manifest_.tensors[shard.tensor].dtype));
    std::vector<bool> needed(ChecksumBlockCount(shard.bytes));
    const auto need = [&](FlatRange run) {
      const uint64_t first = static_cast<uint64_t>(run.begin) * width / kChecksumBlockBytes;
      const uint64_t last = (static_cast<uint64_t>(run.end) * width - 1) / kChecksumBlockBytes;
      for (uint64_t block = first; block <= last; ++block) needed[block] = true;
    };
    std::vector<FlatRange> runs;
    for (const auto& [overlap, at] : overlaps) {
      if (overlap.contiguous() || needed.size() == 1) {
        need(overlap.source_span());
        continue;
      }
      runs.clear();
      overlap.AppendRuns(runs);
      for (const FlatRange& run : runs) need(run);
    }
    for (uint64_t block = 0; block < needed.size();) {
      if (!needed[block]) {
        ++block;
        continue;
      }
      uint64_t end = block;
      while (end < needed.size() && needed[end] && end - block < kChunkBytes / kChecksumBlockBytes) ++end;
      const uint64_t begin = block * kChecksumBlockBytes;
      tasks.push_back({&shard, begin, std::min(end * kChecksumBlockBytes, shard.bytes) - begin, &overlaps});
      block = end;
    }
  }

  absl::Status RunTasks(const std::vector<Task>& tasks) {
    std::atomic<size_t> next{0};
    Mutex mutex;
    absl::Status error;
    std::atomic<bool> failed{false};
    const auto work = [&](char* chunk) {
      while (!failed) {
        const size_t i = next++;
        if (i >= tasks.size()) return;
        absl::Status status = options_.interrupted && options_.interrupted()
                                  ? MakeError(Reason::kInterrupted, "interrupted")
                                  : RunTask(tasks[i], chunk);
        if (status.ok()) continue;
        MutexLock lock(mutex);
        if (error.ok()) error = std::move(status);
        failed = true;
      }
    };
    std::atomic<size_t> chunk{0};
    RunOnThreads(static_cast<int>(std::min(chunks_.size(), tasks.size())), [&] { work(chunks_[chunk++].data()); });
    return error;
  }

  absl::Status RunTask(const Task& task, char* memory) {
    auto* const chunk = reinterpret_cast<std::byte*>(memory);
    CAIRN_RETURN_IF_ERROR(reader_.Read(*task.shard, task.begin, task.bytes, chunk));
    const int width = BytesOf(manifest_.tensors[task.shard->tensor].dtype);
    const FlatRange part{static_cast<int64_t>(task.begin) / width,
                         static_cast<int64_t>(task.begin + task.bytes) / width};
    std::vector<StridedCopy> copies;
    for (const auto& [overlap, at] : *task.overlaps) {
      const FlatRange span = overlap.source_span();
      if (span.end <= part.begin || span.begin >= part.end) continue;
      copies.clear();
      overlap.AppendCopies(part, width, copies);
      for (const StridedCopy& strided : copies) {
        TiledCopy copy;
        copy.source = chunk + strided.source_offset;
        copy.target = reinterpret_cast<std::byte*>(window_.data()) + at + strided.target_offset;
        copy.element_bytes = strided.element_bytes;
        for (size_t d = 0; d < strided.extent.size(); ++d) {
          copy.dimensions.push_back({strided.extent[d], strided.source_stride[d], strided.target_stride[d]});
        }
        copy.casts = overlap.casts();
        copy.Simplify();
        Execute(copy);
      }
    }
    return absl::OkStatus();
  }

  const Manifest& manifest_;
  const ExportPlan& plan_;
  Output& output_;
  const WriteExportOptions& options_;
  ItemReader reader_;
  uint64_t window_bytes_ = 0;
  AlignedBuffer window_;
  std::vector<AlignedBuffer> chunks_;  // one for each thread
  uint64_t done_ = 0;
};

}  // namespace

absl::Status WriteExport(PosixStorage& storage, const Manifest& manifest, const ExportPlan& plan,
                         const std::string& directory, const WriteExportOptions& options) {
  Output output(directory);
  CAIRN_RETURN_IF_ERROR(output.Open());
  CAIRN_RETURN_IF_ERROR(Exporter(storage, manifest, plan, output, options).Run());
  if (options.interrupted && options.interrupted()) return MakeError(Reason::kInterrupted, "interrupted");
  return output.Publish();
}

}  // namespace cairn
