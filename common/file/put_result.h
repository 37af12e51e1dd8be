// Results of giving a file its name.
#ifndef CAIRN_COMMON_FILE_PUT_RESULT_H_
#define CAIRN_COMMON_FILE_PUT_RESULT_H_

#include "absl/status/statusor.h"

namespace cairn {

enum class Put { kCreated, kExists };

// Says whether the file got its name.
struct PutResult {
  // If this is not an error, the name is as durable as the caller asked, also for kExists.
  absl::StatusOr<Put> put;
  // True: `put` is an error after storage was asked to make the name, so the name may exist now or later. False: it
  // does not.
  bool in_doubt = false;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_FILE_PUT_RESULT_H_
