#include "foreign/import/bin_stream.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/base/mutex.h"
#include "common/file/direct_io.h"
#include "common/file/errno_error.h"
#include "common/file/retry.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// The size of one write.
constexpr uint64_t kPieceBytes = uint64_t{8} << 20;
// So many that the disk always has writes to do, also while some threads compute checksums.
constexpr int kThreads = 4;

std::vector<uint64_t> BeginsOf(const std::vector<StoredItem>& items) {
  std::vector<uint64_t> begins = {0};
  for (const StoredItem& item : items) begins.push_back(begins.back() + item.bytes());
  return begins;
}

}  // namespace

BinStream::BinStream(PosixStorage& storage, BinDescription description)
    : storage_(&storage), description_(std::move(description)), checksummer_(BeginsOf(description_.items)) {}

std::string BinStream::Path(std::string_view ending) const {
  return absl::StrCat(description_.directory, "/", description_.name, std::string(ending));
}

absl::Status BinStream::Failed(int error, std::string_view operation) const {
  return ErrnoError(error, operation, absl::StrCat(storage_->root(), "/", Path(".partial")));
}

absl::StatusOr<BinStream> BinStream::Create(PosixStorage& storage, BinDescription description) {
  BinStream stream(storage, std::move(description));
  CAIRN_ASSIGN_OR_RETURN(stream.fd_, storage.OpenFile(stream.Path(".partial"), O_WRONLY | O_CREAT | O_EXCL));
  const int fd = stream.fd_.get();
  const auto bytes = static_cast<off_t>(stream.description_.header_bytes + RoundUpToIo(stream.description_.data_bytes));
  while (fallocate(fd, 0, 0, bytes) != 0) {
    if (errno == EINTR) continue;
    if (errno == EOPNOTSUPP || errno == ENOSYS) break;
    return Annotate(stream.Failed(errno, "allocate"), absl::StrCat(bytes, " bytes"));
  }
  BeginDirectIo(fd);
  return stream;
}

absl::Status BinStream::WriteAt(uint64_t offset, const char* bytes, uint64_t size) {
  const int error = WriteBlocksAt(fd_.get(), {bytes, size}, offset);
  return error == 0 ? absl::OkStatus() : Failed(error, "write");
}

absl::Status BinStream::Append(char* bytes, uint64_t size) {
  if (written_ % kIoAlignment != 0 || size > description_.data_bytes - written_) {
    return MakeError(Reason::kInternal, absl::StrCat(Path(".partial"), ": ", size, " bytes at ", written_));
  }
  const uint64_t padded = RoundUpToIo(size);
  std::memset(bytes + size, 0, padded - size);
  const size_t pieces = (padded + kPieceBytes - 1) / kPieceBytes, first = fragments_.size();
  fragments_.resize(first + pieces);
  // Both are done to every piece, by whichever thread is free, so the disk does not wait for the checksums.
  std::atomic<size_t> next{0};
  Mutex mutex;
  absl::Status error;
  RunOnThreads(pieces > 1 ? kThreads : 1, [&] {
    while (true) {
      const size_t i = next++;
      if (i >= pieces) return;
      const uint64_t begin = i * kPieceBytes, length = std::min(kPieceBytes, padded - begin);
      fragments_[first + i] = checksummer_.Touch(written_ + begin, bytes + begin, length);
      absl::Status status = WriteAt(description_.header_bytes + written_ + begin, bytes + begin, length);
      if (status.ok()) continue;
      next = pieces;
      MutexLock lock(mutex);
      error.Update(status);
    }
  });
  written_ += size;
  return error;
}

absl::StatusOr<v1::FileResult> BinStream::Finish(const std::vector<uint64_t>& object_bytes) {
  std::vector<ItemChecksums> checksums = checksummer_.Combine(fragments_);
  v1::FileResult result;
  size_t object = 0;
  for (size_t i = 0; i < description_.items.size(); ++i) {
    result.add_item_checksums(checksums[i].crc32c);
    if (!description_.items[i].object) continue;
    checksums[i].object_bytes = object_bytes[object++];
    result.add_object_sizes(checksums[i].object_bytes);
  }
  const std::string header = RenderHeader(description_.items, checksums, description_.identity, description_.aliases);
  if (header.size() != description_.header_bytes || written_ != description_.data_bytes) {
    return MakeError(Reason::kInternal, absl::StrCat(Path(".partial"), ": header and data have ", header.size(),
                                                     " and ", written_, " bytes, planned were ",
                                                     description_.header_bytes, " and ", description_.data_bytes));
  }
  AlignedBuffer buffer(header.size());
  std::memcpy(buffer.data(), header.data(), header.size());
  CAIRN_RETURN_IF_ERROR(WriteAt(0, buffer.data(), header.size()));
  const uint64_t bytes = header.size() + description_.data_bytes;
  if (Truncate(fd_.get(), bytes) != 0) return Failed(errno, "truncate");
  if (Fsync(fd_.get()) != 0) return Failed(errno, "fsync");
  fd_ = UniqueFd();
  const PosixStorage::PutResult renamed = storage_->Rename(Path(".partial"), Path(".safetensors"));
  CAIRN_RETURN_IF_ERROR(renamed.put.status());
  if (*renamed.put == PosixStorage::Put::kExists) {
    return ErrnoError(EEXIST, "rename", absl::StrCat(storage_->root(), "/", Path(".safetensors")));
  }
  result.set_header_crc32c(Crc32c(header.data(), header.size()));
  result.set_file_bytes(bytes);
  return result;
}

}  // namespace cairn
