// What storage says of the attempts of a job, in short.
#ifndef CAIRN_STORE_READ_ATTEMPT_SUMMARY_H_
#define CAIRN_STORE_READ_ATTEMPT_SUMMARY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/format/manifest.h"

namespace cairn {

// The record that ended an attempt, as it stands in storage.
struct OutcomeSummary {
  int64_t step = 0;
  uint32_t attempt = 0;
  // Its outcome is a manifest. It stays true if the attempt is deleted later.
  bool committed = false;
  // It was deleted: nobody may load it, whatever its outcome was, and `error` says when and why.
  bool deleted = false;
  // There is an outcome that cannot be read, or that is not what it should be: `error` says why. Nobody may load the
  // attempt, and nothing of it is removed.
  bool damaged = false;
  std::string request_id;
  // Why it was aborted (an abort record), what is wrong with it (a damaged outcome), or when and why it was deleted.
  absl::Status error;
  // The next three are set for a manifest, also of a deleted attempt.
  uint64_t bytes = 0;
  uint32_t world_size = 0;
  absl::Time commit_time = absl::UnixEpoch();
  // Set for a manifest that was not deleted.
  Lineage lineage;

  // Returns whether it may be loaded: it makes its step a committed one.
  bool stands() const { return committed && !deleted; }
};

// An attempt that has a directory, and no manifest or a deleted one.
struct Leftover {
  int64_t step = 0;
  uint32_t attempt = 0;
  bool abort_record = false;  // one stands, or a deletion; only the files are left
  bool deleted = false;       // it is a deletion: loads that have begun may read the files still
};

// Says what is known of a job's steps without asking storage.
struct KnownSteps {
  std::vector<int64_t> all;        // that have an outcome of any kind, ascending
  std::vector<int64_t> current;    // of these, the committed and not superseded, or damaged ones, ascending
  std::vector<int64_t> committed;  // of these, the committed ones
};

struct Recovered {
  std::vector<OutcomeSummary> outcome;  // ascending by (step, attempt)
  std::vector<Leftover> leftover;
};

}  // namespace cairn

#endif  // CAIRN_STORE_READ_ATTEMPT_SUMMARY_H_
