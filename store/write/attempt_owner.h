// Makes an attempt's directory, and checks who has made it. The coordinator that made the directory puts the file
// ".owner" there, with a random number (the nonce), and names the same number in its orders. Whoever writes into the
// directory, or commits it, first checks that the file has this number. So two coordinators that both believe they
// serve a root never share a directory, and an agent that sees another storage below its root writes nothing.
#ifndef CAIRN_STORE_WRITE_ATTEMPT_OWNER_H_
#define CAIRN_STORE_WRITE_ATTEMPT_OWNER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "store/storage/storage.h"

namespace cairn {

// Makes an attempt's directory, which must not exist, with its owner file. kExists and durability: see
// Storage::ClaimDirectory. The owner file may be lost in a power cut; after one nobody goes on with an attempt that has
// no outcome. `what` is a line for people in that file.
absl::StatusOr<Put> MakeAttemptDirectory(Storage& storage, std::string_view directory, uint64_t nonce,
                                         std::string_view what);

// Checks that the directory belongs to `nonce`. FAILED_PRECONDITION (ROOT_MISMATCH): the directory does not exist, has
// no owner file, or has another number in it. Another number is believed only if a second reading, past the page cache,
// gives it too. UNAVAILABLE (STORAGE_ERROR): the two readings differ. Else the other errors of storage.
absl::Status CheckAttemptOwner(Storage& storage, std::string_view directory, uint64_t nonce);

}  // namespace cairn

#endif  // CAIRN_STORE_WRITE_ATTEMPT_OWNER_H_
