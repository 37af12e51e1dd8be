#include "coordinator/server/coordinator_metrics.h"

#include <prometheus/metric_type.h>

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/time/time.h"
#include "common/base/time_proto.h"
#include "common/metrics/process_metrics.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildGauge;

const prometheus::Histogram::BucketBoundaries& DurationBuckets() {
  static const auto* const buckets =
      new prometheus::Histogram::BucketBoundaries{0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800};
  return *buckets;
}

// Prometheus itself names the target that it asks "job".
constexpr char kJobLabel[] = "job_name";
// This is no name of a job.
constexpr char kOtherJobs[] = "(other)";

std::string KindLabel(v1::Timeline::Kind kind) { return absl::AsciiStrToLower(v1::Timeline::Kind_Name(kind)); }

}  // namespace

CoordinatorMetrics::CoordinatorMetrics(std::function<Now()> now)
    : now_(std::move(now)),
      operations_(BuildCounter()
                      .Name("cairn_operations_total")
                      .Help("Saves, loads and reshards that have ended.")
                      .Register(registry_)),
      failures_(BuildCounter()
                    .Name("cairn_operation_failures_total")
                    .Help("Those of them that were given up, by the reason of the error.")
                    .Register(registry_)),
      bytes_(BuildCounter()
                 .Name("cairn_operation_bytes_total")
                 .Help("Bytes of the files of committed saves, and bytes that loads read.")
                 .Register(registry_)),
      seconds_(prometheus::BuildHistogram()
                   .Name("cairn_operation_duration_seconds")
                   .Help("From the first rank's call until the operation ended well.")
                   .Register(registry_)),
      phase_seconds_(BuildCounter()
                         .Name("cairn_operation_phase_seconds_total")
                         .Help("Where the time of ended operations went; the phases of one add up to its duration.")
                         .Register(registry_)),
      slowest_rank_(BuildGauge()
                        .Name("cairn_slowest_rank")
                        .Help("The rank that the last operation waited for in this phase, as a value.")
                        .Register(registry_)),
      slowest_behind_(BuildGauge()
                          .Name("cairn_slowest_rank_behind_seconds")
                          .Help("How much later this rank was than the one in the middle.")
                          .Register(registry_)),
      last_commit_time_(BuildGauge()
                            .Name("cairn_last_commit_timestamp_seconds")
                            .Help("When the last save was committed, since this coordinator started.")
                            .Register(registry_)),
      last_commit_step_(BuildGauge().Name("cairn_last_commit_step").Help("The step of that save.").Register(registry_)),
      leases_ended_(BuildCounter()
                        .Name("cairn_leases_ended_total")
                        .Help("Agents that were not heard for a lease, and count as lost.")
                        .Register(registry_)),
      alarms_(BuildCounter()
                  .Name("cairn_alarms_total")
                  .Help("Alarms of committed saves, by kind: something in the state looks wrong")
                  .Register(registry_)) {}

std::string CoordinatorMetrics::JobLabel(const std::string& job) const {
  MutexLock lock(mutex_);
  if (jobs_.size() >= kJobs && !jobs_.contains(job)) return kOtherJobs;
  jobs_.insert(job);
  return job;
}

void CoordinatorMetrics::Observe(const OperationTimeline& timeline) {
  const OperationTimeline::End& end = timeline.end();
  const std::string job = JobLabel(end.job);
  const std::string kind = KindLabel(timeline.kind());
  const prometheus::Labels labels = {{kJobLabel, job}, {"operation", kind}};
  prometheus::Labels with_result = labels;
  // The first start of a job asks for its latest checkpoint as every later one does.
  const bool nothing =
      timeline.kind() == v1::Timeline::LOAD && !end.step.has_value() && HasReason(end.error, Reason::kNotCommitted);
  with_result["result"] = end.error.ok() ? "ok" : nothing ? "nothing" : "failed";
  operations_.Add(with_result).Increment();
  if (nothing) return;
  for (const OperationTimeline::Stretch& stretch : timeline.stretches()) {
    const prometheus::Labels with_phase = {
        {kJobLabel, job}, {"operation", kind}, {"phase", SpanPhaseName(stretch.phase)}};
    phase_seconds_.Add(with_phase).Increment(absl::ToDoubleSeconds(stretch.end - stretch.begin));
    if (stretch.last_ranks.empty()) continue;
    slowest_rank_.Add(with_phase).Set(stretch.last_ranks.front());
    slowest_behind_.Add(with_phase).Set(absl::ToDoubleSeconds(stretch.behind));
  }
  if (!end.error.ok()) {
    const auto reason = ReasonOf(end.error);
    failures_
        .Add({{kJobLabel, job},
              {"operation", kind},
              {"reason", reason.has_value() ? std::string(InfoOf(*reason).name) : "UNKNOWN"}})
        .Increment();
    return;
  }
  bytes_.Add(labels).Increment(static_cast<double>(end.bytes));
  seconds_.Add(labels, DurationBuckets()).Observe(absl::ToDoubleSeconds(timeline.duration()));
  if (timeline.kind() != v1::Timeline::SAVE) return;
  for (const std::string& alarm : end.alarms) alarms_.Add({{kJobLabel, job}, {"kind", alarm}}).Increment();
  last_commit_time_.Add({{kJobLabel, job}}).Set(absl::ToDoubleSeconds(timeline.end_wall() - absl::UnixEpoch()));
  last_commit_step_.Add({{kJobLabel, job}}).Set(static_cast<double>(end.step.value_or(0)));
}

void CoordinatorMetrics::LeasesEnded(const std::string& job, uint64_t leases) {
  leases_ended_.Add({{kJobLabel, JobLabel(job)}}).Increment(static_cast<double>(leases));
}

std::vector<prometheus::MetricFamily> CoordinatorMetrics::Collect() const {
  const Now now = now_();
  // A counter that begins above zero shows no increase, so those that alerts look at begin before the first operation.
  for (const v1::JobSummary& job : now.jobs) {
    leases_ended_.Add({{kJobLabel, JobLabel(job.job())}});
    for (const char* operation : {"save", "load"}) {
      for (const char* result : {"ok", "failed"}) {
        operations_.Add({{kJobLabel, JobLabel(job.job())}, {"operation", operation}, {"result", result}});
      }
    }
  }
  std::vector<prometheus::MetricFamily> families = registry_.Collect();
  const auto gauge = [](const char* name, const char* help) {
    return EmptyFamily(name, help, prometheus::MetricType::Gauge);
  };
  prometheus::MetricFamily world = gauge("cairn_job_world_size", "Ranks that the job has; 0 if not known.");
  prometheus::MetricFamily agents = gauge("cairn_job_agents", "Agents of the job that are registered.");
  prometheus::MetricFamily trainers = gauge("cairn_job_trainers", "Training processes attached to these agents.");
  prometheus::MetricFamily halted =
      gauge("cairn_job_trainers_halted", "Of these, processes that are stopped or do not move in the kernel.");
  prometheus::MetricFamily running = gauge("cairn_operations_running", "Saves and loads that are under way.");
  prometheus::MetricFamily oldest =
      gauge("cairn_oldest_operation_seconds", "How long the oldest of these goes on; 0 if there is none.");
  bool has_other = false;
  for (const v1::JobSummary& job : now.jobs) {
    const std::string label = JobLabel(job.job());
    if (label == kOtherJobs) {
      // Gauges of several jobs cannot stand under one name.
      if (std::exchange(has_other, true)) continue;
    }
    AddMeasured(world, {{kJobLabel, label}}, job.world_size());
    AddMeasured(agents, {{kJobLabel, label}}, job.agents());
    AddMeasured(trainers, {{kJobLabel, label}}, job.trainers());
    AddMeasured(halted, {{kJobLabel, label}}, job.trainers_halted());
    AddMeasured(running, {{kJobLabel, label}, {"operation", "save"}}, job.saves_running());
    AddMeasured(running, {{kJobLabel, label}, {"operation", "load"}}, job.loads_running());
    AddMeasured(oldest, {{kJobLabel, label}}, absl::ToDoubleSeconds(DurationOf(job.oldest_running())));
  }
  for (auto* family : {&world, &agents, &trainers, &halted, &running, &oldest}) families.push_back(std::move(*family));
  families.push_back(MeasuredGauge("cairn_stalled_storage_calls",
                                   "Threads that have waited for storage longer than --storage-timeout.",
                                   now.stalled_storage_calls));
  prometheus::MetricFamily refusals =
      EmptyFamily("cairn_coordinator_refusals_total",
                  "Calls that were refused for want of room or time, by their kind.", prometheus::MetricType::Counter);
  for (const auto& [kind, count] : now.refusals) AddMeasured(refusals, {{"kind", kind}}, static_cast<double>(count));
  families.push_back(std::move(refusals));
  families.push_back(MeasuredCounter("cairn_coordinator_stopped_seconds_total",
                                     "Time in which the process did not run: it was stopped or throttled.",
                                     absl::ToDoubleSeconds(now.stopped)));
  families.push_back(MeasuredCounter("cairn_coordinator_deaf_seconds_total",
                                     "Time in which it ran and was too busy to hear its agents.",
                                     absl::ToDoubleSeconds(now.deaf)));
  families.push_back(MeasuredGauge("cairn_coordinator_epoch", "Grows with each coordinator that takes the root.",
                                   static_cast<double>(now.epoch)));
  if (!now.mirror.has_value()) return families;
  families.push_back(MeasuredGauge("cairn_mirror_reachable", "1 if the last look at the mirror succeeded.",
                                   now.mirror->reachable ? 1 : 0));
  families.push_back(MeasuredGauge("cairn_mirror_waiting_steps", "Steps that wait to be copied to the mirror.",
                                   static_cast<double>(now.mirror->steps_waiting)));
  families.push_back(MeasuredCounter("cairn_mirror_steps_total", "Steps that were copied to the mirror.",
                                     static_cast<double>(now.mirror->steps_copied)));
  families.push_back(MeasuredCounter("cairn_mirror_bytes_total", "Bytes of these steps.",
                                     static_cast<double>(now.mirror->bytes_copied)));
  families.push_back(MeasuredCounter("cairn_mirror_failures_total", "Looks at the mirror, or copies, that failed.",
                                     static_cast<double>(now.mirror->failures)));
  return families;
}

}  // namespace cairn
