// Puts and removes small records of which a person must learn whether the change was made.
#ifndef CAIRN_STORE_WRITE_CHANGED_RECORD_H_
#define CAIRN_STORE_WRITE_CHANGED_RECORD_H_

#include <string>

#include "absl/status/status.h"
#include "store/storage/storage.h"

namespace cairn {

// If storage fails, these two read the record. If the change was made nevertheless, they make it durable and return OK.
// If they cannot find out, the error is one of UnknownOutcome. PutRecord leaves a record that stands as it is, unless
// it may replace it.
absl::Status PutRecord(Storage& storage, const std::string& path, const std::string& bytes, bool replace);
absl::Status RemoveRecord(Storage& storage, const std::string& path);

// Makes a change durable that was made although storage has returned `failed` for it.
absl::Status SettleChange(Storage& storage, const std::string& path, const absl::Status& failed);

// Adds to an error that nobody knows whether the change was made ("outcome" in its metadata), and what to do.
absl::Status UnknownOutcome(const absl::Status& failed);
bool OutcomeIsUnknown(const absl::Status& status);

}  // namespace cairn

#endif  // CAIRN_STORE_WRITE_CHANGED_RECORD_H_
