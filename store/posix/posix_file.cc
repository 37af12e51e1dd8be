#include "store/posix/posix_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/file/errno_error.h"
#include "common/file/open_again.h"
#include "common/file/retry.h"
#include "common/resources/aligned_buffer.h"
#include "common/resources/page_size.h"
#include "common/status/reason.h"
#include "common/status/status.h"

#ifndef SYS_cachestat
#define SYS_cachestat 451
#endif

namespace cairn {
namespace {

// These are for cachestat(2) of Linux 6.5. Debian 12's headers do not have it.
struct CacheRange {
  uint64_t offset;
  uint64_t bytes;
};
struct CacheStat {
  uint64_t cached;
  uint64_t dirty;
  uint64_t writeback;
  uint64_t evicted;
  uint64_t recently_evicted;
};

static_assert(kReadAlignment == kIoAlignment);

// The size of one request to read ahead. The kernel would cut a larger one to the disk's own limit.
constexpr uint64_t kFetchBytes = uint64_t{1} << 20;

// A direct read that is not in place goes through a buffer of at most this size.
constexpr uint64_t kBounceBytes = uint64_t{1} << 20;

uint64_t Down(uint64_t value) { return value / kReadAlignment * kReadAlignment; }
uint64_t Up(uint64_t value) { return Down(value + kReadAlignment - 1); }

// FAT keeps times in steps of two seconds.
constexpr int64_t kTimeStep = 2'000'000'000;

std::string IdentityOf(const struct stat& info) {
  return absl::StrCat(info.st_dev, " ", info.st_ino, " ", info.st_size, " ",
                      absl::ToUnixNanos(absl::TimeFromTimespec(info.st_mtim)), " ",
                      absl::ToUnixNanos(absl::TimeFromTimespec(info.st_ctim)));
}

}  // namespace

bool IsCached(int fd, uint64_t offset, uint64_t size) {
  if (size == 0) return true;
  const uint64_t begin = RoundDownToPages(offset), bytes = RoundUpToPages(offset + size) - begin;
  const uint64_t pages = bytes / PageBytes();
  CacheRange range = {begin, bytes};
  CacheStat stat = {};
  if (syscall(SYS_cachestat, fd, &range, &stat, 0) == 0) return stat.cached >= pages;
  void* mapped = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, static_cast<off_t>(begin));
  if (mapped == MAP_FAILED) return false;
  std::vector<unsigned char> resident(pages);
  const bool known = mincore(mapped, bytes, resident.data()) == 0;
  munmap(mapped, bytes);
  return known && std::all_of(resident.begin(), resident.end(), [](unsigned char page) { return page & 1; });
}

absl::StatusOr<std::unique_ptr<PosixFile>> PosixFile::Open(ConfinedDirectory& root, std::string_view path,
                                                           std::string full_path, const OpenOptions& options,
                                                           const PosixCalls& calls) {
  // A pipe in the place of the file must not hold up the call.
  constexpr int kFlags = O_RDONLY | O_NONBLOCK;
  CAIRN_ASSIGN_OR_RETURN(UniqueFd buffered, root.OpenFile(path, kFlags));
  struct stat info;
  if (StatOf(buffered.get(), info) != 0) return ErrnoError(errno, "stat", full_path);
  if (!S_ISREG(info.st_mode)) return NoRegularFileError(info.st_mode, "read", full_path);
  Facts facts = {std::move(full_path), static_cast<uint64_t>(info.st_size), absl::TimeFromTimespec(info.st_mtim),
                 IdentityOf(info)};
  std::unique_ptr<PosixFile> file(new PosixFile(std::move(facts), options, calls));
  file->buffered_ = std::move(buffered);
  CAIRN_RETURN_IF_ERROR(file->CheckFacts(options));
  if (options.cache == Cache::kUse) return file;
  if (calls.direct || options.cache == Cache::kBypass) {
    auto direct = root.OpenFile(path, kFlags | O_DIRECT);
    // Somebody may have given the name to another file meanwhile.
    if (direct.ok() && StatOf(direct->get(), info) == 0 && IdentityOf(info) == file->identity()) {
      file->direct_ = *std::move(direct);
    }
  }
  if (!file->direct_.valid()) file->RefuseDirect();
  return file;
}

absl::Status PosixFile::CheckFacts(const OpenOptions& options) {
  if (options.bytes.has_value() && *options.bytes != bytes()) {
    return MakeError(Reason::kFileTruncated,
                     absl::StrCat(path(), " has ", bytes(), " bytes, its manifest says ", *options.bytes),
                     {{"file", path()}, {"bytes", absl::StrCat(bytes())}, {"expected", absl::StrCat(*options.bytes)}});
  }
  without_checksums_ = options.modified_ns.has_value();
  if (options.modified_ns.value_or(0) == 0) return absl::OkStatus();
  return std::abs(absl::ToUnixNanos(modified()) - *options.modified_ns) > kTimeStep ? WrittenAnew() : absl::OkStatus();
}

void PosixFile::RefuseDirect() {
  direct_refused_ = true;
  // The next best way: the kernel drops the cached pages, except those that are not written to the disk yet.
  if (cache_ == Cache::kBypass) posix_fadvise(buffered_.get(), 0, 0, POSIX_FADV_DONTNEED);
}

absl::Status PosixFile::ReadFully(int fd, uint64_t offset, uint64_t size, uint64_t wanted, char* to,
                                  std::atomic<uint64_t>& count) {
  uint64_t done = 0;
  while (done < wanted) {
    const ssize_t got = calls_.pread ? calls_.pread(fd, to + done, size - done, static_cast<off_t>(offset + done))
                                     : ::pread(fd, to + done, size - done, static_cast<off_t>(offset + done));
    if (got < 0) {
      if (errno == EINTR) continue;
      return Annotate(ErrnoError(errno, "read", path()), absl::StrCat(size - done, " bytes at ", offset + done));
    }
    const uint64_t before = done;
    done += static_cast<uint64_t>(got);
    count += static_cast<uint64_t>(got);
    if (done >= wanted) break;
    const uint64_t end = offset + done;
    // A direct read must continue at a whole block. It ends within a block only at the end of the file.
    if (fd == direct_.get()) done = Down(done);
    if (done == before) {
      return MakeError(Reason::kFileTruncated, absl::StrCat(path(), " ends at ", end, " of ", bytes(), " bytes"),
                       {{"file", path()}, {"expected", absl::StrCat(bytes())}});
    }
  }
  return absl::OkStatus();
}

absl::Status PosixFile::ReadDirect(uint64_t offset, uint64_t size, char* to, bool in_place) {
  const uint64_t begin = Down(offset), end = Up(offset + size);
  if (in_place) {
    return ReadFully(direct_.get(), begin, end - begin, offset + size - begin, to - (offset - begin), counters_.direct);
  }
  AlignedBuffer bounce(std::min(end - begin, kBounceBytes));
  for (uint64_t at = begin; at < offset + size; at += kBounceBytes) {
    const uint64_t from = std::max(at, offset), until = std::min(at + kBounceBytes, offset + size);
    CAIRN_RETURN_IF_ERROR(ReadFully(direct_.get(), at, Up(until) - at, until - at, bounce.data(), counters_.direct));
    std::memcpy(to + (from - offset), bounce.data() + (from - at), until - from);
  }
  return absl::OkStatus();
}

PosixFile::Way PosixFile::Begin(uint64_t offset, uint64_t size) {
  if (cache_ == Cache::kBypass) return direct_refused_ ? Way::kBuffered : Way::kDirect;
  // The kernel need not read more than was asked for: the bytes before and behind belong to other ranks.
  if (!random_.exchange(true)) posix_fadvise(buffered_.get(), 0, 0, POSIX_FADV_RANDOM);
  if (IsCached(buffered_.get(), offset, size)) {
    // A direct write that was cut to the file's length has left its last page in the cache, where another process could
    // not read it without waiting. Any read of it ends that.
    const uint64_t end = offset + size;
    char byte;
    if (end > RoundDownToPages(bytes())) (void)!pread(buffered_.get(), &byte, 1, static_cast<off_t>(end - 1));
    return Way::kCached;
  }
  if (direct_.valid() && !direct_refused_) return Way::kDirect;
  for (uint64_t at = offset; at < offset + size; at += kFetchBytes) {
    posix_fadvise(buffered_.get(), static_cast<off_t>(at),
                  static_cast<off_t>(std::min(kFetchBytes, offset + size - at)), POSIX_FADV_WILLNEED);
  }
  return Way::kBuffered;
}

// Whoever reads what is shared must not wait for storage, so the kernel has to tell whether it would. Some file systems
// do not know.
bool PosixFile::shares_page_cache() const {
  char byte;
  iovec part = {&byte, 1};
  return preadv2(buffered_.get(), &part, 1, 0, RWF_NOWAIT) >= 0 || errno == EAGAIN;
}

absl::StatusOr<UniqueFd> PosixFile::Share() const {
  auto shared = OpenAgainToRead(buffered_.get());
  if (!shared.ok()) return Annotate(shared.status(), path());
  return shared;
}

absl::Status PosixFile::WrittenAnew() const {
  return MakeError(Reason::kBadForeignFile, absl::StrCat(path(), " was written anew while it was loaded"),
                   {{"file", path()}, {"next", "Load it again when nobody writes to it, or load a copy."}});
}

absl::Status PosixFile::Read(Way way, uint64_t offset, uint64_t size, char* to, bool in_place) {
  CAIRN_RETURN_IF_ERROR(ReadRange(way, offset, size, to, in_place));
  if (!without_checksums_) return absl::OkStatus();
  // If somebody wrote to the file before these bytes were read, its time has changed by now.
  struct stat info;
  if (StatOf(buffered_.get(), info) != 0) return ErrnoError(errno, "stat", path());
  return absl::TimeFromTimespec(info.st_mtim) == modified() ? absl::OkStatus() : WrittenAnew();
}

absl::Status PosixFile::ReadRange(Way way, uint64_t offset, uint64_t size, char* to, bool in_place) {
  if (size == 0) return absl::OkStatus();
  if (way == Way::kCached) return ReadFully(buffered_.get(), offset, size, size, to, counters_.cached);
  if (way == Way::kDirect) {
    const absl::Status read = ReadDirect(offset, size, to, in_place);
    if (read.ok()) return read;
    // Some file systems accept O_DIRECT and then refuse the read, or end it where the file does not end.
    struct stat info;
    const bool is_there = HasReason(read, Reason::kFileTruncated) && StatOf(buffered_.get(), info) == 0 &&
                          static_cast<uint64_t>(info.st_size) >= offset + size;
    if (!is_there && MetadataOf(read)["errno"] != absl::StrCat(EINVAL)) return read;
    RefuseDirect();
  }
  return ReadFully(buffered_.get(), offset, size, size, to, counters_.buffered);
}

}  // namespace cairn
