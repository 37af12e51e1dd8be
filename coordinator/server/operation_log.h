// Keeps what the last saves and loads of each job did with their time, until the coordinator ends.
#ifndef CAIRN_COORDINATOR_SERVER_OPERATION_LOG_H_
#define CAIRN_COORDINATOR_SERVER_OPERATION_LOG_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "cairn/v1/monitoring_service.pb.h"
#include "common/base/mutex.h"
#include "coordinator/timeline/operation_timeline.h"

namespace cairn {

// Thread-safe. Its memory has a bound: each operation has one (OperationTimeline::kRanksKept), and there are at most
// kPerJob of a job and kInAll together.
class OperationLog {
 public:
  static constexpr size_t kPerJob = 100;
  static constexpr size_t kInAll = 2000;
  // A page of the list has at most about so many spans, so that it fits into a message.
  static constexpr size_t kSpansPerPage = 20000;

  // Takes an operation that has ended. The oldest of its job goes if there are too many of that, else the oldest of
  // all.
  void Add(std::shared_ptr<const OperationTimeline> timeline);
  // Answers MonitoringService.ListTimelines. `before`: the page begins below this id; 0 for the first page.
  v1::ListTimelinesResponse List(const v1::ListTimelinesRequest& request, uint64_t before) const;

 private:
  using Entry = std::pair<uint64_t, std::shared_ptr<const OperationTimeline>>;  // with its id

  mutable Mutex mutex_;
  uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t count_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<std::string, std::deque<Entry>> jobs_ ABSL_GUARDED_BY(mutex_);  // oldest first
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_SERVER_OPERATION_LOG_H_
