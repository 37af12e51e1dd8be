// What became of a file that was to get its name.
#ifndef CAIRN_COMMON_FILE_PUT_RESULT_H_
#define CAIRN_COMMON_FILE_PUT_RESULT_H_

#include "absl/status/statusor.h"

namespace cairn {

enum class Put { kCreated, kExists };

// Says whether the file got its name.
struct PutResult {
  // When this is not an error, the name is as durable as the caller asked, also for kExists.
  absl::StatusOr<Put> put;
  // True: `put` is an error that came after storage was asked for the name, so the file may have it now or get it
  // later. False: the file does not have it.
  bool in_doubt = false;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_FILE_PUT_RESULT_H_
