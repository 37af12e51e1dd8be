#include "agent/staging/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/staging/huge_pages.h"
#include "common/file/errno_error.h"
#include "common/file/open_again.h"
#include "common/file/retry.h"
#include "common/process/log.h"
#include "common/process/quantity.h"
#include "common/resources/page_size.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21U << 26)
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace cairn {
namespace {

constexpr uint64_t kPiece = uint64_t{16} << 20;

// Whether the log says that descriptors are missing. It uses the same events as common/rpc/acceptor.h, because a
// trainer that attaches needs descriptors both for connections and for memory.
std::atomic<bool> no_descriptors = false;

void NoteDescriptors(const absl::Status& missing) {
  if (no_descriptors.exchange(!missing.ok()) == !missing.ok()) return;
  if (missing.ok()) {
    Log(LogLevel::kInfo, "descriptors_free");
  } else {
    Log(LogLevel::kError, "no_descriptors", {{"error", missing}, {"next", NextActionOf(missing)}});
  }
}

absl::Status Refused(std::string_view what, uint64_t bytes, int error) {
  if (error == EMFILE || error == ENFILE) {
    const std::string of =
        absl::StrCat(absl::string_view(what.data(), what.size()), " of ", FormatSize(static_cast<int64_t>(bytes)));
    const absl::Status missing = ErrnoError(error, "make", of);
    NoteDescriptors(missing);
    return missing;
  }
  return MakeError(
      Reason::kMemoryLimit,
      absl::StrCat(absl::string_view(what.data(), what.size()), " of ", FormatSize(static_cast<int64_t>(bytes)),
                   " was refused: ", std::generic_category().message(error)),
      {{"bytes", absl::StrCat(bytes)}, {"errno", absl::StrCat(error)}});
}

// Allocates the pages of a range. Returns 0 or an errno. Kernels before 5.14 do not have MADV_POPULATE_WRITE.
int PopulateRange(const SharedMemory& memory, uint64_t offset, uint64_t bytes) {
  char* const begin = memory.data() + offset;
  while (madvise(begin, bytes, MADV_POPULATE_WRITE) != 0) {
    if (errno == EINTR || errno == EAGAIN) continue;
    if (errno != EINVAL) return errno;
    if (memory.pages() == SharedMemory::Pages::kSetAside) {
      // A write would end the process where its control group has a limit of such pages.
      const int error = fallocate(memory.fd(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes));
      return error == 0 ? 0 : errno;
    }
    for (uint64_t at = 0; at < bytes; at += PageBytes()) {
      // Writing 0 is safe, because no other process has the memory yet. volatile: the compiler must not drop the write.
      *static_cast<volatile char*>(begin + at) = 0;
    }
    return 0;
  }
  return 0;
}

absl::Status TooFewSetAside(uint64_t bytes, int error) {
  const uint64_t needed = bytes / kHugePageBytes, free = ReadHugePages().set_aside;
  return MakeError(
      Reason::kMemoryLimit,
      absl::StrCat(needed, " huge pages of 2 MiB for shared memory were refused, ", free,
                   " are free: ", std::generic_category().message(error)),
      {{"bytes", absl::StrCat(bytes)},
       {"errno", absl::StrCat(error)},
       {"next",
        "Set more aside in /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages (in a container: its limit "
        "hugepages-2Mi), or start the agent without --huge-pages."}});
}

}  // namespace

uint64_t SharedMemory::WholePages(uint64_t bytes, Pages pages) {
  if (pages == Pages::kOrdinary) return RoundUpToPages(bytes);
  return (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
}

absl::StatusOr<std::shared_ptr<SharedMemory>> SharedMemory::Create(const std::string& name, uint64_t bytes,
                                                                   Pages pages) {
  if (bytes == 0 || bytes > uint64_t{1} << 46) return Refused("shared memory", bytes, EINVAL);
  const bool set_aside = pages == Pages::kSetAside;
  bytes = WholePages(bytes, pages);
  UniqueFd fd(
      memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING | (set_aside ? MFD_HUGETLB | MFD_HUGE_2MB : 0U)));
  if (!fd.valid() && set_aside && errno != EMFILE && errno != ENFILE) return TooFewSetAside(bytes, errno);
  if (!fd.valid()) return Refused("shared memory", bytes, errno);
  NoteDescriptors(absl::OkStatus());
  if (fchmod(fd.get(), 0600) != 0 || Truncate(fd.get(), bytes) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return Refused("shared memory", bytes, errno);
  }
  // This reserves all pages of those that were set aside.
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED && set_aside) return TooFewSetAside(bytes, errno);
  if (data == MAP_FAILED) return Refused("mapping shared memory", bytes, errno);
  madvise(data, bytes, MADV_HUGEPAGE);  // if the kernel gives them to shared memory
  madvise(data, bytes, MADV_DONTDUMP);  // a checkpoint in a core file is of no use
  return std::shared_ptr<SharedMemory>(new SharedMemory(std::move(fd), static_cast<char*>(data), bytes, pages));
}

const char* SharedMemory::huge_pages() const {
  if (pages_ == Pages::kSetAside) return "set_aside";
  return bytes_ >= kHugePageBytes && ReadHugePages().by_itself ? "by_kernel" : "no";
}

SharedMemory::~SharedMemory() { munmap(data_, bytes_); }

absl::Status SharedMemory::CheckSealing() {
  const auto memory = Create("cairn-probe", 1);
  return memory.ok() ? (*memory)->OpenReadOnly().status() : memory.status();
}

bool SharedMemory::sealed() const {
  const int seals = fcntl(fd_.get(), F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_FUTURE_WRITE) != 0;
}

absl::Status SharedMemory::Populate(int threads) {
  return ForEachOnThreads("for shared memory", (bytes_ + kPiece - 1) / kPiece, threads, [&](size_t piece, int) {
    const uint64_t begin = piece * kPiece;
    const int error = PopulateRange(*this, begin, std::min(kPiece, bytes_ - begin));
    if (error == 0) return absl::OkStatus();
    return pages_ == Pages::kSetAside ? TooFewSetAside(bytes_, error) : Refused("shared memory", bytes_, error);
  });
}

absl::StatusOr<UniqueFd> SharedMemory::OpenReadOnly() const {
  // F_SEAL_SEAL forbids further seals, so that no receiver can add one that stops the agent's own writes.
  if (!sealed() && fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0 && !sealed()) {
    return MakeError(Reason::kMemoryUnsealed,
                     absl::StrCat("the kernel does not seal shared memory against writing: ",
                                  std::generic_category().message(errno)),
                     {{"errno", absl::StrCat(errno)}});
  }
  (void)fchmod(fd_.get(), 0400);  // shows people that the memory is read-only
  return OpenAgainToRead(fd_.get());
}

}  // namespace cairn
