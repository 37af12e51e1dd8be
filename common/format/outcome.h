// Encodes and decodes the record that ends an attempt: a manifest (the commit) or an abort record. Also the record that
// a committed attempt was deleted. docs/storage_format.md describes their bytes.
#ifndef CAIRN_COMMON_FORMAT_OUTCOME_H_
#define CAIRN_COMMON_FORMAT_OUTCOME_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/format/manifest.h"

namespace cairn {

struct AbortRecord {
  std::string job;
  int64_t step = 0;
  uint32_t attempt = 0;
  std::string request_id;
  // A name from the table of reasons.
  std::string reason;
  std::string message;
  absl::Time time = absl::UnixEpoch();

  bool operator==(const AbortRecord&) const = default;
};

using Outcome = std::variant<Manifest, AbortRecord>;

// Records that a committed attempt was deleted. It is stored beside the attempt's outcome, which stays.
struct Deletion {
  std::string job;
  int64_t step = 0;
  uint32_t attempt = 0;
  // Says for people who deleted it, or which policy.
  std::string cause;
  absl::Time time = absl::UnixEpoch();
  // A valid checkpoint of the job that existed at the time of the deletion.
  int64_t remaining_step = 0;
  // The rest is copied from the manifest. If the manifest could not be read, world_size is 0 and the rest is empty.
  std::string request_id;
  uint64_t bytes = 0;
  uint32_t world_size = 0;
  absl::Time commit_time = absl::UnixEpoch();
  // No person asked for the deletion: rules did not keep the checkpoint, or a later one took its place.
  bool by_rules = false;

  // Returns whether the manifest could be read.
  bool of_a_commit() const { return world_size > 0; }
  bool operator==(const Deletion&) const = default;
};

// Returns the bytes of an outcome: magic "CAIRNVRD", version, length, CRC32C, one zstd frame of a
// cairn.v1.OutcomeRecord.
std::string EncodeOutcome(const Outcome& outcome);
// Returns the bytes of a deletion, in the same form.
std::string EncodeDeletion(const Deletion& deletion);

// Checks the head and the checksum of an outcome, in linear time. It does not decode the record. DATA_LOSS
// (MANIFEST_CORRUPT), FAILED_PRECONDITION (FORMAT_TOO_NEW): as DecodeOutcome.
absl::Status CheckOutcome(std::string_view bytes);

// Reads an outcome. `bytes` are untrusted: sizes, indices and positions are checked. Memory is bounded by the record's
// true contents and by `max_record_bytes`, the maximum size of the record after decompression. DATA_LOSS
// (MANIFEST_CORRUPT): the bytes are no outcome, are cut off, or have a wrong checksum or number; the message says
// which. FAILED_PRECONDITION (FORMAT_TOO_NEW): the checksum is right, and the version is higher than this build knows.
// RESOURCE_EXHAUSTED (MEMORY_LIMIT): the system refused the memory.
absl::StatusOr<Outcome> DecodeOutcome(std::string_view bytes, uint64_t max_record_bytes = uint64_t{1} << 30);
// Reads a deletion, with the errors of DecodeOutcome. Each of the two functions refuses the other's record.
absl::StatusOr<Deletion> DecodeDeletion(std::string_view bytes);

// Returns true if a damaged outcome was certainly the manifest of this attempt: the part of its zstd frame before the
// damage decompresses to the beginning of a manifest and not of an abort record. False proves nothing.
bool ShowsManifestOf(std::string_view bytes, std::string_view job, int64_t step, uint32_t attempt);

}  // namespace cairn

#endif  // CAIRN_COMMON_FORMAT_OUTCOME_H_
