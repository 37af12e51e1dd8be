// Encodes and decodes the record that ends an attempt, which is a manifest (the commit) or an abort record, and the
// record by which a committed attempt was deleted. docs/storage_format.md has their bytes.
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

// Says that an attempt was deleted. It stands beside the attempt's outcome, which stays.
struct Deletion {
  std::string job;
  int64_t step = 0;
  uint32_t attempt = 0;
  // Says for people who wanted it, or which policy.
  std::string cause;
  absl::Time time = absl::UnixEpoch();
  // This valid checkpoint of the job stood then.
  int64_t remaining_step = 0;
  // The rest is as the manifest said; empty, and a world of no ranks, if it could not be read.
  std::string request_id;
  uint64_t bytes = 0;
  uint32_t world_size = 0;
  absl::Time commit_time = absl::UnixEpoch();

  // Returns whether the manifest could be read.
  bool of_a_commit() const { return world_size > 0; }
  bool operator==(const Deletion&) const = default;
};

// Returns the bytes of an outcome: magic "CAIRNVRD", version, length, CRC32C, one zstd frame of a
// cairn.v1.OutcomeRecord.
std::string EncodeOutcome(const Outcome& outcome);
// Returns the bytes of a deletion, in the same form.
std::string EncodeDeletion(const Deletion& deletion);

// Checks by the head and the checksum, in linear time, that a writer has put these bytes there. It does not decode
// the record. DATA_LOSS (MANIFEST_CORRUPT), FAILED_PRECONDITION (FORMAT_TOO_NEW): as DecodeOutcome.
absl::Status CheckOutcome(std::string_view bytes);

// Reads an outcome. `bytes` are untrusted: sizes, indices and positions are checked, and memory is bounded by what the
// record really holds and by `max_record_bytes`, the size of the largest record after decompression. DATA_LOSS
// (MANIFEST_CORRUPT): it is no outcome, is cut off, or has a wrong checksum or number; the message says which.
// FAILED_PRECONDITION (FORMAT_TOO_NEW): it has the right checksum and a higher version. RESOURCE_EXHAUSTED
// (MEMORY_LIMIT): the system refused the memory.
absl::StatusOr<Outcome> DecodeOutcome(std::string_view bytes, uint64_t max_record_bytes = uint64_t{1} << 30);
// Reads a deletion, as DecodeOutcome reads an outcome. Neither takes the other's record.
absl::StatusOr<Deletion> DecodeDeletion(std::string_view bytes);

// Returns true if what is left of a damaged outcome shows that it was the manifest of this attempt: up to the damage,
// its zstd frame gives a record that begins like a manifest and not like an abort record. False proves nothing.
bool ShowsManifestOf(std::string_view bytes, std::string_view job, int64_t step, uint32_t attempt);

}  // namespace cairn

#endif  // CAIRN_COMMON_FORMAT_OUTCOME_H_
