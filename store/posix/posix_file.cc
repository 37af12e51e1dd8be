#include "common/file/range_reader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/file/errno_error.h"
#include "common/file/retry.h"
#include "common/resources/aligned_buffer.h"
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

// One request to fetch ahead asks for so much. The kernel cuts a larger one to what the disk takes at once.
constexpr uint64_t kFetchBytes = uint64_t{1} << 20;

uint64_t Down(uint64_t value) { return value / kReadAlignment * kReadAlignment; }
uint64_t Up(uint64_t value) { return Down(value + kReadAlignment - 1); }

// FAT keeps times in steps of two seconds.
constexpr int64_t kTimeStep = 2'000'000'000;

int64_t ModifiedNs(const struct stat& info) {
  return static_cast<int64_t>(info.st_mtim.tv_sec) * 1'000'000'000 + info.st_mtim.tv_nsec;
}

}  // namespace

bool IsCached(int fd, uint64_t offset, uint64_t size) {
  if (size == 0) return true;
  const uint64_t begin = Down(offset);
  const uint64_t pages = (Up(offset + size) - begin) / kReadAlignment;
  CacheRange range = {begin, pages * kReadAlignment};
  CacheStat stat = {};
  if (syscall(SYS_cachestat, fd, &range, &stat, 0) == 0) return stat.cached >= pages;
  void* mapped = mmap(nullptr, pages * kReadAlignment, PROT_READ, MAP_SHARED, fd, static_cast<off_t>(begin));
  if (mapped == MAP_FAILED) return false;
  std::vector<unsigned char> resident(pages);
  const bool known = mincore(mapped, pages * kReadAlignment, resident.data()) == 0;
  munmap(mapped, pages * kReadAlignment);
  return known && std::all_of(resident.begin(), resident.end(), [](unsigned char page) { return page & 1; });
}

absl::StatusOr<std::unique_ptr<RangeReader>> RangeReader::Open(PosixStorage& storage, const std::string& path,
                                                               uint64_t file_bytes, const RangeReaderOptions& options,
                                                               ReadCounters& counters,
                                                               std::optional<int64_t> modified_ns) {
  std::unique_ptr<RangeReader> reader(new RangeReader(
      absl::StrCat(storage.root() == "/" ? "" : storage.root(), "/", path), file_bytes, options, counters));
  // A pipe in the place of the file must not hold up the call.
  CAIRN_ASSIGN_OR_RETURN(reader->buffered_, storage.OpenFile(path, O_RDONLY | O_NONBLOCK));
  struct stat info;
  if (StatOf(reader->buffered_.get(), info) != 0) return ErrnoError(errno, "stat", reader->path_);
  if (!S_ISREG(info.st_mode)) return ErrnoError(EISDIR, "read", reader->path_);
  if (static_cast<uint64_t>(info.st_size) != file_bytes) {
    return MakeError(
        Reason::kFileTruncated,
        absl::StrCat(reader->path_, " has ", info.st_size, " bytes, its manifest says ", file_bytes),
        {{"file", reader->path_}, {"bytes", absl::StrCat(info.st_size)}, {"expected", absl::StrCat(file_bytes)}});
  }
  if (modified_ns.has_value()) {
    reader->modified_ns_ = ModifiedNs(info);
    if (*modified_ns != 0 && std::abs(*reader->modified_ns_ - *modified_ns) > kTimeStep) return reader->WrittenAnew();
  }
  if (options.direct) {
    auto direct = storage.OpenFile(path, O_RDONLY | O_NONBLOCK | O_DIRECT);
    if (direct.ok()) reader->direct_ = *std::move(direct);
  }
  if (!reader->direct_.valid()) reader->direct_refused_ = true;
  // Exactly what is asked for is read: neighbours belong to other ranks.
  posix_fadvise(reader->buffered_.get(), 0, 0, POSIX_FADV_RANDOM);
  return reader;
}

absl::Status RangeReader::ReadFully(int fd, uint64_t offset, uint64_t size, uint64_t wanted, char* to,
                                    std::atomic<uint64_t>& count) {
  uint64_t done = 0;
  while (done < wanted) {
    const ssize_t got = options_.pread ? options_.pread(fd, to + done, size - done, static_cast<off_t>(offset + done))
                                       : ::pread(fd, to + done, size - done, static_cast<off_t>(offset + done));
    if (got < 0) {
      if (errno == EINTR) continue;
      return Annotate(ErrnoError(errno, "read", path_), absl::StrCat(size - done, " bytes at ", offset + done));
    }
    const uint64_t before = done;
    done += static_cast<uint64_t>(got);
    count += static_cast<uint64_t>(got);
    if (done >= wanted) break;
    const uint64_t end = offset + done;
    // A direct read goes on at a whole block. It ends within one only where the file does.
    if (fd == direct_.get()) done = Down(done);
    if (done == before) {
      return MakeError(Reason::kFileTruncated,
                       absl::StrCat(path_, " ends at ", end, ", its manifest says ", file_bytes_),
                       {{"file", path_}, {"expected", absl::StrCat(file_bytes_)}});
    }
  }
  return absl::OkStatus();
}

absl::Status RangeReader::ReadDirect(uint64_t offset, uint64_t size, char* to, bool in_place) {
  const uint64_t begin = Down(offset), end = Up(offset + size);
  if (in_place) {
    return ReadFully(direct_.get(), begin, end - begin, offset + size - begin, to - (offset - begin), counters_.direct);
  }
  AlignedBuffer bounce(end - begin);
  CAIRN_RETURN_IF_ERROR(
      ReadFully(direct_.get(), begin, end - begin, offset + size - begin, bounce.data(), counters_.direct));
  std::memcpy(to, bounce.data() + (offset - begin), size);
  return absl::OkStatus();
}

RangeReader::Way RangeReader::Begin(uint64_t offset, uint64_t size) {
  if (IsCached(buffered_.get(), offset, size)) return Way::kCached;
  if (!direct_refused_) return Way::kDirect;
  for (uint64_t at = offset; at < offset + size; at += kFetchBytes) {
    posix_fadvise(buffered_.get(), static_cast<off_t>(at),
                  static_cast<off_t>(std::min(kFetchBytes, offset + size - at)), POSIX_FADV_WILLNEED);
  }
  return Way::kBuffered;
}

absl::Status RangeReader::WrittenAnew() const {
  return MakeError(Reason::kBadForeignFile, absl::StrCat(path_, " was written anew while it was loaded"),
                   {{"file", path_}, {"next", "Load it again when nobody writes to it, or load a copy."}});
}

absl::Status RangeReader::Read(Way way, uint64_t offset, uint64_t size, char* to, bool in_place) {
  CAIRN_RETURN_IF_ERROR(ReadRange(way, offset, size, to, in_place));
  if (!modified_ns_.has_value()) return absl::OkStatus();
  // A write that came before these bytes were read has changed the time by now.
  struct stat info;
  if (StatOf(buffered_.get(), info) != 0) return ErrnoError(errno, "stat", path_);
  return ModifiedNs(info) == *modified_ns_ ? absl::OkStatus() : WrittenAnew();
}

absl::Status RangeReader::ReadRange(Way way, uint64_t offset, uint64_t size, char* to, bool in_place) {
  if (size == 0) return absl::OkStatus();
  if (way == Way::kCached) return ReadFully(buffered_.get(), offset, size, size, to, counters_.cached);
  if (way == Way::kDirect) {
    const absl::Status read = ReadDirect(offset, size, to, in_place);
    // Some file systems take the flag and refuse the read.
    if (read.ok() || MetadataOf(read)["errno"] != absl::StrCat(EINVAL)) return read;
    direct_refused_ = true;
  }
  return ReadFully(buffered_.get(), offset, size, size, to, counters_.buffered);
}

}  // namespace cairn
