// Reads a file from where it is stored, not from this machine's memory of it.
#ifndef CAIRN_COMMON_FILE_UNCACHED_FILE_H_
#define CAIRN_COMMON_FILE_UNCACHED_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/file/posix.h"

namespace cairn {

// Reads as PosixStorage::ReadFile does, but with O_DIRECT. Where the file system refuses that, it first drops the
// file's pages from the page cache, as far as the kernel allows. It gives a second opinion on bytes that look damaged.
absl::StatusOr<std::string> ReadUncached(PosixStorage& storage, std::string_view path, uint64_t max_bytes);

// UNAVAILABLE (STORAGE_ERROR): the second opinion is another one, so nobody can say what `question` asks. `file` is
// its whole path.
absl::Status GaveOtherBytes(const std::string& file, std::string_view question);

}  // namespace cairn

#endif  // CAIRN_COMMON_FILE_UNCACHED_FILE_H_
