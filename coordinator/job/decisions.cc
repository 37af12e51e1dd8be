#include "coordinator/job/decisions.h"

#include <algorithm>

#include "common/format/checkpoint_path.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// A job without agents is forgotten after this; what it saved is found again in storage.
constexpr absl::Duration kForgetAfter = absl::Minutes(10);
constexpr absl::Duration kForgetUnknownAfter = absl::Seconds(1);

}  // namespace

Moment Decisions::At(absl::Time now, absl::Time wall) {
  last_now_ = std::max(last_now_, now);
  return Moment{last_now_, wall};
}

absl::StatusOr<Job*> Decisions::JobFor(const std::string& name, const Moment& moment) {
  CAIRN_RETURN_IF_ERROR(CheckJobName(name));
  std::unique_ptr<Job>& job = jobs_[name];
  if (job == nullptr) job = std::make_unique<Job>(name, options_, *layouts_, effects_, moment.now);
  return job.get();
}

Job* Decisions::Find(const std::string& name) {
  const auto found = jobs_.find(name);
  return found == jobs_.end() ? nullptr : found->second.get();
}

void Decisions::AddLayout(const std::string& digest, uint64_t bytes, const Moment& moment) {
  layouts_->Add(digest, bytes);
  OnLayout(digest, moment);
}

void Decisions::OnLayout(const std::string& digest, const Moment& moment) {
  for (auto& [name, job] : jobs_) job->OnLayout(digest, moment);
}

void Decisions::Tick(absl::Time now, absl::Time wall) {
  const Moment moment = At(now, wall);
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    job->second->Tick(moment, deaf_);
    // A name that was only asked for is no job. It stays for as long as somebody may be asking.
    const absl::Duration after = job->second->known()       ? kForgetAfter
                                 : job->second->recovered() ? kForgetUnknownAfter
                                                            : options_.lease_ttl;
    const bool forget = job->second->idle() && moment.now - job->second->last_used() > after;
    job = forget ? jobs_.erase(job) : std::next(job);
  }
}

std::vector<std::pair<std::string, OrderBook::Woken>> Decisions::TakeWoken() {
  std::vector<std::pair<std::string, OrderBook::Woken>> woken;
  for (auto& [name, job] : jobs_) {
    OrderBook::Woken of_job = job->TakeWoken();
    if (of_job.all || !of_job.ranks.empty()) woken.emplace_back(name, std::move(of_job));
  }
  return woken;
}

std::vector<v1::JobSummary> Decisions::Summaries(const Moment& moment) const {
  std::vector<v1::JobSummary> summaries;
  for (const auto& [name, job] : jobs_) {
    if (job->known()) summaries.push_back(job->Summary(moment));
  }
  return summaries;
}

bool Decisions::ReleaseOldestPlan() {
  return std::any_of(jobs_.begin(), jobs_.end(), [](auto& job) { return job.second->ReleaseOldestPlan(); });
}

bool Decisions::busy() const {
  return std::any_of(jobs_.begin(), jobs_.end(), [](const auto& job) { return job.second->busy(); });
}

}  // namespace cairn
