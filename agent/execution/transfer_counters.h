// Counts what an agent has written and read since it started, for its metrics.
#ifndef CAIRN_AGENT_EXECUTION_TRANSFER_COUNTERS_H_
#define CAIRN_AGENT_EXECUTION_TRANSFER_COUNTERS_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/status/reason.h"

namespace cairn {

// Thread-safe.
class TransferCounters {
 public:
  struct Values {
    uint64_t writes = 0;  // that ended well
    uint64_t bytes_written = 0;
    double write_seconds = 0;                        // of these
    std::map<std::string, uint64_t> write_failures;  // by the error's reason
    uint64_t loads = 0;                              // that have ended, whatever became of them
    uint64_t bytes_read = 0;                         // for tensors
    uint64_t storage_bytes = 0;                      // that storage gave for them
  };

  void Wrote(uint64_t bytes, double seconds) {
    MutexLock lock(mutex_);
    ++values_.writes;
    values_.bytes_written += bytes;
    values_.write_seconds += seconds;
  }
  void FailedToWrite(const absl::Status& error) {
    const auto reason = ReasonOf(error);
    MutexLock lock(mutex_);
    ++values_.write_failures[reason.has_value() ? std::string(InfoOf(*reason).name) : "UNKNOWN"];
  }
  void Read(uint64_t bytes, uint64_t storage_bytes) {
    MutexLock lock(mutex_);
    ++values_.loads;
    values_.bytes_read += bytes;
    values_.storage_bytes += storage_bytes;
  }
  Values values() const {
    MutexLock lock(mutex_);
    return values_;
  }

 private:
  mutable Mutex mutex_;
  Values values_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cairn

#endif  // CAIRN_AGENT_EXECUTION_TRANSFER_COUNTERS_H_
