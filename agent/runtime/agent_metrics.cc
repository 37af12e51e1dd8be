#include "agent/runtime/agent_metrics.h"

#include <utility>

#include "common/metrics/process_metrics.h"

namespace cairn {

std::vector<prometheus::MetricFamily> AgentMetrics::Collect() const {
  bool registered = false, attached = false, active = false;
  agent_.host().Do([&](Session& session, absl::Time) {
    registered = session.registered();
    attached = session.attached_trainer().has_value();
    active = session.active();
  });
  std::vector<prometheus::MetricFamily> families;
  prometheus::MetricFamily rank =
      EmptyFamily("cairn_agent_rank", "The rank whose agent this is, as a value.", prometheus::MetricType::Gauge);
  AddMeasured(rank, {{"job_name", agent_.options().job}}, agent_.options().rank);
  families.push_back(std::move(rank));
  families.push_back(
      MeasuredGauge("cairn_agent_registered", "1 while the coordinator knows this agent.", registered ? 1 : 0));
  families.push_back(
      MeasuredGauge("cairn_agent_trainer_attached", "1 while a training process is attached.", attached ? 1 : 0));
  families.push_back(MeasuredGauge("cairn_agent_busy", "1 while a save or a load is under way.", active ? 1 : 0));
  families.push_back(MeasuredGauge("cairn_agent_shared_memory_bytes",
                                   "Memory of the staging buffer and of read buffers.",
                                   static_cast<double>(agent_.memory_held())));
  const TransferCounters::Values values = agent_.counters().values();
  families.push_back(MeasuredCounter("cairn_agent_writes_total", "Parts of saves that were written to storage.",
                                     static_cast<double>(values.writes)));
  families.push_back(
      MeasuredCounter("cairn_agent_written_bytes_total", "Bytes of these.", static_cast<double>(values.bytes_written)));
  families.push_back(
      MeasuredCounter("cairn_agent_write_seconds_total", "How long writing them took.", values.write_seconds));
  prometheus::MetricFamily failures =
      EmptyFamily("cairn_agent_write_failures_total",
                  "Parts of saves that could not be written, by the error's reason.", prometheus::MetricType::Counter);
  for (const auto& [reason, count] : values.write_failures) {
    AddMeasured(failures, {{"reason", reason}}, static_cast<double>(count));
  }
  families.push_back(std::move(failures));
  families.push_back(MeasuredCounter("cairn_agent_loads_total", "Loads in which this agent took part.",
                                     static_cast<double>(values.loads)));
  families.push_back(MeasuredCounter("cairn_agent_read_bytes_total", "Bytes of tensors that it read for them.",
                                     static_cast<double>(values.bytes_read)));
  families.push_back(MeasuredCounter("cairn_agent_storage_read_bytes_total",
                                     "Bytes that storage gave for this, with those for alignment and verification.",
                                     static_cast<double>(values.storage_bytes)));
  return families;
}

}  // namespace cairn
