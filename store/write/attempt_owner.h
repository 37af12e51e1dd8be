// Says who owns an attempt's directory. The coordinator that made the directory puts the file ".owner" there, with a
// random number that its orders name. Whoever writes into the directory, or commits it, first checks that the number is
// there. So two coordinators that both believe they serve a root do not share a directory, and an agent that sees other
// storage does not write.
#ifndef CAIRN_STORE_WRITE_ATTEMPT_OWNER_H_
#define CAIRN_STORE_WRITE_ATTEMPT_OWNER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "store/storage/storage.h"

namespace cairn {

// Makes an attempt's directory, which must not exist, with its owner. kExists: see Storage::ClaimDirectory. It does not
// wait for the disk: the put of the outcome makes the directory's name durable, and after a power cut nobody goes on
// with an attempt that has no outcome. `what` is for messages.
absl::StatusOr<Put> MakeAttemptDirectory(Storage& storage, std::string_view directory, uint64_t nonce,
                                         std::string_view what);

// FAILED_PRECONDITION (ROOT_MISMATCH): the directory is not there, has no owner, or has another one; another number is
// only believed if it was read twice, the second time past the page cache. UNAVAILABLE (STORAGE_ERROR): the two differ.
// Else the other errors of storage.
absl::Status CheckAttemptOwner(Storage& storage, std::string_view directory, uint64_t nonce);

}  // namespace cairn

#endif  // CAIRN_STORE_WRITE_ATTEMPT_OWNER_H_
