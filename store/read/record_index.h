// What the records of a job's steps say, kept in one file: a job of 10,000 steps in an object store is listed with one
// read in the place of 10,000. No checkpoint depends on the file. What it says of a record counts only as long as the
// storage lists that record with the same identity (Storage::Entry::identity), so it may be old, damaged or missing.
//
// Form (numbers are little-endian):
//    0  8  magic "CAIRNIDX"
//    8  4  version
//   12  4  CRC32C of what follows
//   16     a cairn.v1.RecordIndex
#ifndef CAIRN_STORE_READ_RECORD_INDEX_H_
#define CAIRN_STORE_READ_RECORD_INDEX_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "store/read/stored_attempt.h"

namespace cairn {

// A larger index is neither read nor written.
inline constexpr uint64_t kMaxRecordIndexBytes = uint64_t{64} << 20;

// Records that can be read, by their paths below the root. StoredAttempt::directory is not set.
using RecordIndex = std::map<std::string, StoredAttempt>;

// Returns where the index of a job is, below the root.
std::string RecordIndexPath(std::string_view job);

// `records` must not have damaged ones.
std::string EncodeRecordIndex(const RecordIndex& records);

// DATA_LOSS (MANIFEST_CORRUPT): the bytes are no index of this version, are damaged, or have a record that is none of
// the job's.
absl::StatusOr<RecordIndex> DecodeRecordIndex(std::string_view job, std::string_view bytes);

}  // namespace cairn

#endif  // CAIRN_STORE_READ_RECORD_INDEX_H_
