#include "coordinator/server/operation_log.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"

namespace cairn {

void OperationLog::Add(std::shared_ptr<const OperationTimeline> timeline) {
  MutexLock lock(mutex_);
  auto& of_job = jobs_[timeline->end().job];
  of_job.emplace_back(++last_id_, std::move(timeline));
  if (of_job.size() > kPerJob) {
    of_job.pop_front();
    return;
  }
  if (++count_ <= kInAll) return;
  const auto oldest = std::min_element(jobs_.begin(), jobs_.end(), [](const auto& a, const auto& b) {
    return a.second.front().first < b.second.front().first;
  });
  oldest->second.pop_front();
  --count_;
  if (oldest->second.empty()) jobs_.erase(oldest);
}

v1::ListTimelinesResponse OperationLog::List(const v1::ListTimelinesRequest& request, uint64_t before) const {
  std::vector<Entry> found;
  {
    MutexLock lock(mutex_);
    const auto of_job = jobs_.find(request.job());
    if (of_job != jobs_.end()) found.assign(of_job->second.rbegin(), of_job->second.rend());
  }
  v1::ListTimelinesResponse response;
  size_t spans = 0;
  uint64_t last = 0;
  for (const auto& [id, timeline] : found) {
    if (before != 0 && id >= before) continue;
    if (request.id() != 0 && id != request.id()) continue;
    if (request.has_step() && timeline->end().step != request.step()) continue;
    if (spans >= kSpansPerPage) {
      response.set_next_page_token(absl::StrCat(last));
      break;
    }
    v1::Timeline view = timeline->View();
    view.set_id(id);
    if (request.summary()) view.clear_ranks();
    spans += static_cast<size_t>(view.spans_size());
    for (const v1::RankTimeline& rank : view.ranks()) spans += static_cast<size_t>(rank.spans_size());
    *response.add_timelines() = std::move(view);
    last = id;
  }
  return response;
}

}  // namespace cairn
