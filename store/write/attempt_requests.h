// The requests to an AttemptStore and its answers: for a new attempt, and for the record that ends one.
#ifndef CAIRN_STORE_WRITE_ATTEMPT_REQUESTS_H_
#define CAIRN_STORE_WRITE_ATTEMPT_REQUESTS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "store/read/lineage.h"
#include "store/read/stored_attempt.h"

namespace cairn {

// Finds a number for a new attempt at a step: above every outcome and directory of the step and above `above`. Puts
// abort records on attempts that have no outcome and removes the files of those that have an abort record. Compares the
// plan's names with those of the last committed step on which the training builds, unless `allow_dropped_names`. A
// committed step gets a new attempt only with `overwrite`, or if it is one of `left_behind`.
struct ReserveAttempt {
  int64_t step = 0;
  uint32_t above = 0;
  std::string plan_digest;
  bool allow_dropped_names = false;
  bool overwrite = false;
  // The committed steps on which the training does not build, because it has resumed from an older step.
  std::set<int64_t> left_behind;
  // Where the training has resumed; unset: it has loaded nothing.
  std::optional<ResumePoint> resumed = std::nullopt;
  uint64_t ticket = 0;
};

// A file that must exist with this length before the attempt may be committed.
struct BinFile {
  std::string name;  // with its ending
  int rank = 0;
  uint64_t bytes = 0;
};
using BinFiles = std::shared_ptr<const std::vector<BinFile>>;

// Puts the record that ends an attempt, unless the attempt has one. A manifest is put only if the attempt's directory
// belongs to `nonce` and holds all `bins` with their lengths.
struct PutOutcome {
  int64_t step = 0;
  uint32_t attempt = 0;
  uint64_t nonce = 0;                           // of a manifest's attempt
  std::shared_ptr<const std::string> manifest;  // null for an abort record
  BinFiles bins;                                // of a manifest
  absl::Status error;                           // of an abort record
  std::string request_id;
  uint64_t ticket = 0;
};

struct Reserved {
  uint32_t attempt = 0;
  uint64_t nonce = 0;  // stands in the attempt's directory
};

struct PutAnswer {
  // The record that now ends the attempt, durably.
  absl::StatusOr<StoredAttempt> standing;
  // Only if `standing` is an error. True: the record may exist nevertheless, or appear later. False: it does not exist.
  bool in_doubt = false;
};

}  // namespace cairn

#endif  // CAIRN_STORE_WRITE_ATTEMPT_REQUESTS_H_
