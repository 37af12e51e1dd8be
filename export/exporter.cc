#include "export/exporter.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random_id.h"
#include "common/file/atomic_write.h"
#include "common/file/confined_path.h"
#include "common/file/errno_error.h"
#include "common/file/full_transfer.h"
#include "common/file/retry.h"
#include "common/resources/aligned_buffer.h"
#include "common/resources/memory.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "export/tensor_reader.h"

namespace cairn {
namespace {

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

class Exporter {
 public:
  Exporter(PosixStorage& storage, const Manifest& manifest, const ExportPlan& plan, Output& output,
           const WriteExportOptions& options)
      : plan_(plan),
        output_(output),
        options_(options),
        reader_(&storage, manifest, {.threads = options.threads, .interrupted = options.interrupted}) {}

  absl::Status Run() {
    const uint64_t memory = std::max(options_.memory_bytes, kMinMemory);
    const uint64_t aside = kSpareMemory + reader_.buffer_bytes();
    window_bytes_ = std::max(memory > aside ? memory - aside : 0, kMinMemory / 4) / 4096 * 4096;
    uint64_t largest = 0;
    for (const ExportFile& file : plan_.files) largest = std::max(largest, file.data_bytes);
    window_bytes_ = std::max<uint64_t>(std::min(window_bytes_, largest), 4096);
    CAIRN_ASSIGN_OR_RETURN(window_, Allocate(window_bytes_));
    for (const ExportFile& file : plan_.files) CAIRN_RETURN_IF_ERROR(WriteFile(file));
    CAIRN_ASSIGN_OR_RETURN(const UniqueFd index, output_.Create(std::string(kPlainIndexName), plan_.index.size()));
    const std::string name(kPlainIndexName);
    CAIRN_RETURN_IF_ERROR(output_.Write(index.get(), name, 0, plan_.index));
    return output_.Sync(index.get(), name);
  }

 private:
  absl::Status WriteFile(const ExportFile& file) {
    CAIRN_ASSIGN_OR_RETURN(const UniqueFd fd, output_.Create(file.name, file.header.size() + file.data_bytes));
    CAIRN_RETURN_IF_ERROR(output_.Write(fd.get(), file.name, 0, file.header));
    std::vector<TensorPart> parts;
    uint64_t filled = 0, written = 0;
    const auto flush = [&]() -> absl::Status {
      CAIRN_RETURN_IF_ERROR(reader_.Read(parts, window_.data()));
      CAIRN_RETURN_IF_ERROR(output_.Write(fd.get(), file.name, file.header.size() + written, {window_.data(), filled}));
      written += filled;
      done_ += filled;
      if (options_.progress) options_.progress(done_);
      filled = 0;
      parts.clear();
      return absl::OkStatus();
    };
    for (uint32_t number : file.tensors) {
      const WholeTensor& tensor = plan_.tensors[number];
      const int64_t elements = *ElementCount(tensor.plain.shape);
      const auto width = static_cast<uint64_t>(BytesOf(tensor.plain.dtype));
      // A tensor that fits is not cut, because a permuted one would then be read in several passes.
      const uint64_t bytes = static_cast<uint64_t>(elements) * width;
      if (filled > 0 && bytes > window_bytes_ - filled) CAIRN_RETURN_IF_ERROR(flush());
      for (int64_t begin = 0; begin < elements;) {
        const auto room = static_cast<int64_t>((window_bytes_ - filled) / width);
        const int64_t end = std::min(elements, begin + room);
        parts.push_back({&tensor, begin, end, filled});
        filled += static_cast<uint64_t>(end - begin) * width;
        begin = end;
        if (begin < elements) CAIRN_RETURN_IF_ERROR(flush());
      }
    }
    if (filled > 0) CAIRN_RETURN_IF_ERROR(flush());
    return output_.Sync(fd.get(), file.name);
  }

  const ExportPlan& plan_;
  Output& output_;
  const WriteExportOptions& options_;
  TensorReader reader_;
  uint64_t window_bytes_ = 0;
  AlignedBuffer window_;
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
