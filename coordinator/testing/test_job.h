// One job with what the server around it owns, for tests that bring it events.
#ifndef CAIRN_COORDINATOR_TESTING_TEST_JOB_H_
#define CAIRN_COORDINATOR_TESTING_TEST_JOB_H_

#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/job/job.h"
#include "coordinator/job/testing/job_oracle.h"

namespace cairn {

// Not thread-safe.
class TestJob {
 public:
  TestJob(std::string name, const DecisionOptions& options_of_job, absl::Time now)
      : options(options_of_job), job(std::move(name), options, layouts, now), ticked_{now, now} {}

  void Tick(const Moment& moment) {
    job.Tick(moment, absl::ZeroDuration());
    ticked_ = moment;
  }
  // The bytes of a layout come, as the server tells each job.
  void AddLayout(const std::string& digest, uint64_t bytes, const Moment& moment) {
    layouts.Add(digest, bytes);
    job.OnLayout(digest, moment);
  }
  // Returns what the job has missed of its events so far; see JobOracle.
  std::string Missed() {
    Collect();
    return oracle_.Missed(job, layouts, ticked_);
  }

  // What the events since the last call of the same function have left.
  std::vector<CoreAction> TakeActions() { return std::exchange(Collect().actions, {}); }
  std::vector<LogEvent> TakeLog() { return std::exchange(Collect().log, {}); }
  std::vector<std::shared_ptr<const OperationTimeline>> TakeTimelines() {
    return std::exchange(Collect().timelines, {});
  }
  Job::Woken TakeWoken() {
    Collect();
    return std::exchange(woken_, {});
  }

  DecisionOptions options;
  LayoutTable layouts;
  Job job;

 private:
  Effects& Collect() {
    const auto append = [](auto& to, auto& from) {
      to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
    };
    Effects made = job.TakeEffects();
    append(collected_.actions, made.actions);
    append(collected_.log, made.log);
    append(collected_.timelines, made.timelines);
    Job::Woken woken = job.TakeWoken();
    woken_.all = woken_.all || woken.all;
    append(woken_.ranks, woken.ranks);
    return collected_;
  }

  Moment ticked_;
  Effects collected_;
  Job::Woken woken_;
  JobOracle oracle_;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_TESTING_TEST_JOB_H_
