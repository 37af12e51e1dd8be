// A new object of an object store while it is written, if nobody knows yet how long it will be.
#ifndef CAIRN_STORE_STORAGE_UPLOAD_H_
#define CAIRN_STORE_STORAGE_UPLOAD_H_

#include <atomic>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

namespace cairn {

// Nobody finds the object under its name before Finish has returned OK, and then all of it is durable. If the upload is
// destroyed without Finish and Abort, it stays as an unfinished file until Storage::RemoveUnfinished. Every method may
// fail with the errors of storage, as those of Storage. Except for Begin, StopWhen and Finish it is thread-safe.
class Upload {
 public:
  virtual ~Upload() = default;

  // Makes calls that wait for storage fail soon once `stop` is true; it must outlive the upload.
  virtual void StopWhen(const std::atomic<bool>& stop) = 0;
  // Begins the upload, unless that was done: this finds out whether the object may be written. The other calls do it
  // too.
  virtual absl::Status Begin() = 0;
  // Returns how many bytes a part must have, unless it is the last one, which has at least one and may have fewer.
  // Parts have the numbers 1, 2, ..; 0: there can be no part of this number, because the object would be too large.
  virtual uint64_t PartBytes(int number) const = 0;
  // Sends a part from the caller's memory. Parts may come in any order, and the same part more than once.
  virtual absl::Status Send(int number, std::string_view bytes) = 0;
  // Makes the object of all parts, or an empty one of none. An object of this name is replaced in one step.
  virtual absl::Status Finish() = 0;
  // Removes what was sent, also once the `stop` of StopWhen is true. Does nothing after Finish.
  virtual absl::Status Abort() = 0;
};

}  // namespace cairn

#endif  // CAIRN_STORE_STORAGE_UPLOAD_H_
