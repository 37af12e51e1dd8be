#include "corpus/shuffle/scratch_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "corpus/io/errno_status.h"
#include "corpus/io/nameless_file.h"

namespace cairn::corpus {
namespace {

constexpr uint64_t kLargestStep = uint64_t{64} << 20;

UniqueFd OpenScratch(const std::string& directory, const std::string& path, int extra) {
  if (path.empty()) return OpenNameless(directory, extra);
  return UniqueFd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | extra, 0600));
}

}  // namespace

ScratchFile::ScratchFile(std::string place, UniqueFd fd, bool direct, const Options& options)
    : place_(std::move(place)),
      fd_(std::move(fd)),
      direct_(direct),
      allocated_(options.resume_at),
      prepared_(options.resume_at) {}

absl::Status ScratchFile::StartThreads(int threads) {
  for (int i = 0; i < threads; ++i) {
    auto thread = StartThread("for the temporary file", [this] { Loop(); });
    if (!thread.ok()) return threads_.empty() ? thread.status() : absl::OkStatus();
    threads_.push_back(*std::move(thread));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ScratchFile>> ScratchFile::Create(const std::string& directory, const Options& options) {
  bool direct = options.direct;
  UniqueFd fd = OpenScratch(directory, options.path, direct ? O_DIRECT : 0);
  if (!fd.valid() && errno == EINVAL && direct) {
    direct = false;
    fd = OpenScratch(directory, options.path, 0);
  }
  if (!fd.valid()) return OutputError("create a temporary file in", directory, errno);
  struct stat found;
  if (!options.path.empty() &&
      (fstat(fd.get(), &found) != 0 || static_cast<uint64_t>(found.st_size) < options.resume_at)) {
    return MakeError(Reason::kFileTruncated,
                     absl::StrCat(options.path, " lacks what was written before the interruption"),
                     {{"file", options.path}});
  }
  if (ftruncate(fd.get(), static_cast<off_t>(options.resume_at)) != 0) {
    return OutputError("truncate the temporary file in", directory, errno);
  }
  auto file = std::unique_ptr<ScratchFile>(new ScratchFile(directory, std::move(fd), direct, options));
  CAIRN_RETURN_IF_ERROR(file->StartThreads(options.threads));
  return file;
}

ScratchFile::~ScratchFile() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

uint64_t ScratchFile::Allocate(uint64_t bytes) {
  const uint64_t offset = allocated_.fetch_add(bytes, std::memory_order_relaxed);
  // File systems let only one write at a time make a file longer, but several writes inside it at the same time. So the
  // file grows in increasing steps, by the thread that first passes the end of the last step. Without that (a full
  // disk, another file system, the page cache) writes do as well as they can. A region larger than the largest step is
  // not prepared, because its last part may stay a hole.
  uint64_t prepared = prepared_.load(std::memory_order_relaxed);
  const uint64_t end = offset + bytes;
  while (direct() && end > prepared) {
    const uint64_t next = bytes > kLargestStep ? end : end + std::min(end, kLargestStep);
    if (!prepared_.compare_exchange_weak(prepared, next, std::memory_order_relaxed)) continue;
    if (next > end) (void)fallocate(fd_.get(), 0, static_cast<off_t>(prepared), static_cast<off_t>(next - prepared));
    break;
  }
  return offset;
}

absl::Status ScratchFile::Transfer(bool write, char* data, size_t bytes, uint64_t offset) const {
  while (bytes > 0) {
    // This must be read before the call, because another thread may change it meanwhile.
    const bool was_direct = direct_.load();
    const ssize_t count = write ? pwrite(fd_.get(), data, bytes, static_cast<off_t>(offset))
                                : pread(fd_.get(), data, bytes, static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    const bool unaligned =
        count > 0 && static_cast<size_t>(count) < bytes && static_cast<size_t>(count) % kIoAlignment != 0;
    if ((count < 0 && errno == EINVAL && was_direct) || unaligned) {
      fcntl(fd_.get(), F_SETFL, fcntl(fd_.get(), F_GETFL) & ~O_DIRECT);
      direct_.store(false);  // after the flag is off, because whoever reads false writes through the page cache
      if (count < 0) continue;
    }
    if (count <= 0) {
      const int error = count < 0 ? errno : write ? ENOSPC : EIO;
      return OutputError(write ? "write a temporary file in" : "read back a temporary file in", place_, error);
    }
    data += count;
    offset += static_cast<uint64_t>(count);
    bytes -= static_cast<size_t>(count);
  }
  return absl::OkStatus();
}

void ScratchFile::Loop() {
  while (true) {
    Job job;
    {
      MutexLock lock(mutex_);
      while (jobs_.empty() && !stopping_) changed_.Wait(mutex_);
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job.done(Transfer(job.write, job.data, job.bytes, job.offset));
  }
}

void ScratchFile::Write(const char* data, size_t bytes, uint64_t offset, Done done) {
  MutexLock lock(mutex_);
  jobs_.push_back({true, const_cast<char*>(data), bytes, offset, std::move(done)});
  changed_.NotifyOne();
}

void ScratchFile::Read(char* data, size_t bytes, uint64_t offset, Done done) {
  MutexLock lock(mutex_);
  jobs_.push_back({false, data, bytes, offset, std::move(done)});
  changed_.NotifyOne();
}

absl::Status ScratchFile::ReadNow(char* data, size_t bytes, uint64_t offset) const {
  return Transfer(false, data, bytes, offset);
}

absl::Status ScratchFile::Sync() {
  if (fdatasync(fd_.get()) == 0) return absl::OkStatus();
  return OutputError("fsync", place_, errno);
}

void ScratchFile::Discard(const ScratchExtent& extent) {
  // Not every file system can do this; without it the space comes back at the end.
  (void)fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(extent.offset()),
                  static_cast<off_t>(extent.bytes()));
}

}  // namespace cairn::corpus
