#include "cli/views/history_view.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/views/operation_result.h"
#include "common/base/enum_text.h"
#include "common/base/time_proto.h"
#include "common/process/quantity.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"

namespace cairn::cli {
namespace {

std::string ReasonName(const absl::Status& status) {
  return std::string(InfoOf(ReasonOf(status).value_or(Reason::kInternal)).name);
}

std::string TimeText(absl::Time time) { return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone()); }

}  // namespace

std::optional<double> HistoryEntry::throughput() const {
  if (result != kOperationDone || bytes == 0 || !duration.has_value() || *duration <= absl::ZeroDuration())
    return std::nullopt;
  return static_cast<double>(bytes) / absl::ToDoubleSeconds(*duration);
}

HistoryEntry EntryOf(const v1::Timeline& timeline) {
  HistoryEntry entry;
  entry.kind = EnumText(timeline.kind());
  if (timeline.has_step()) entry.step = timeline.step();
  entry.attempt = timeline.attempt();
  entry.time = TimeOf(timeline.begin_time());
  entry.duration = DurationOf(timeline.duration());
  entry.bytes = timeline.bytes();
  entry.world_size = timeline.world_size();
  entry.result = ResultOf(timeline);
  if (entry.result == kNothingToLoad) {
    entry.message = "the job had no checkpoint yet";
  } else if (timeline.has_error()) {
    entry.message = std::string(StatusFromProto(timeline.error()).message());
  } else if (timeline.alarms_size() > 0) {
    entry.message = absl::StrCat("alarms: ", absl::StrJoin(timeline.alarms(), ", "));
  }
  absl::Duration longest = absl::ZeroDuration();
  for (const v1::TimelineSpan& span : timeline.spans()) {
    const absl::Duration took = DurationOf(span.end()) - DurationOf(span.begin());
    if (span.awaited_ranks().empty() || took <= longest) continue;
    longest = took;
    entry.slowest_phase = EnumText(span.phase());
    entry.slowest_rank = span.awaited_ranks(0);
  }
  return entry;
}

std::vector<HistoryEntry> EntriesOf(const std::vector<StepRecord>& steps) {
  std::vector<HistoryEntry> entries;
  for (const StepRecord& step : steps) {
    for (const StoredAttempt& attempt : step.attempts) {
      if (attempt.unfinished) continue;
      HistoryEntry entry;
      entry.kind = "save";
      entry.step = step.step;
      entry.attempt = attempt.attempt;
      entry.time = attempt.time;
      entry.bytes = attempt.bytes;
      entry.world_size = attempt.world_size;
      entry.result = attempt.stands()  ? std::string(kOperationDone)
                     : attempt.deleted ? "deleted"
                                       : ReasonName(attempt.error);
      entry.message = std::string(attempt.error.message());
      const auto kind = [](std::string* out, const Alarm& alarm) { absl::StrAppend(out, alarm.kind); };
      if (entry.message.empty() && !attempt.alarms.empty()) {
        entry.message = absl::StrCat("alarms: ", absl::StrJoin(attempt.alarms, ", ", kind));
      }
      entries.push_back(std::move(entry));
    }
  }
  std::stable_sort(entries.begin(), entries.end(),
                   [](const HistoryEntry& a, const HistoryEntry& b) { return a.time < b.time; });
  return entries;
}

nlohmann::ordered_json EntryToJson(const HistoryEntry& entry) {
  using Json = nlohmann::ordered_json;
  const std::optional<double> throughput = entry.throughput();
  return {{"kind", entry.kind},
          {"step", entry.step.has_value() ? Json(*entry.step) : Json()},
          {"attempt", entry.attempt},
          {"time", entry.time == absl::UnixEpoch() ? Json() : Json(TimeText(entry.time))},
          {"result", entry.result},
          {"message", entry.message},
          {"duration", entry.duration.has_value() ? Json(absl::ToDoubleSeconds(*entry.duration)) : Json()},
          {"bytes", entry.bytes},
          {"throughput", throughput.has_value() ? Json(*throughput) : Json()},
          {"world_size", entry.world_size},
          {"slowest_rank", entry.slowest_rank.has_value() ? Json(*entry.slowest_rank) : Json()},
          {"slowest_phase", entry.slowest_phase.empty() ? Json() : Json(entry.slowest_phase)}};
}

Table HistoryTable(const std::vector<HistoryEntry>& entries) {
  Table table({"TIME", "OPERATION", "STEP", "RESULT", "TOOK", "BYTES", "RATE", "SLOWEST", "WHY"});
  for (const HistoryEntry& entry : entries) {
    const std::optional<double> throughput = entry.throughput();
    table.Add(
        {entry.time == absl::UnixEpoch() ? "" : TimeText(entry.time), entry.kind,
         entry.step.has_value() ? absl::StrCat(*entry.step) : "", entry.result,
         entry.duration.has_value() ? ShortDuration(*entry.duration) : "",
         entry.bytes == 0 ? "" : FormatSize(static_cast<int64_t>(entry.bytes)),
         throughput.has_value() ? absl::StrCat(FormatSize(static_cast<int64_t>(*throughput)), "/s") : "",
         entry.slowest_rank.has_value() ? absl::StrCat("rank ", *entry.slowest_rank, " (", entry.slowest_phase, ")")
                                        : "",
         entry.message},
        entry.result == kOperationDone                                ? Colour::kNone
        : entry.result == "deleted" || entry.result == kNothingToLoad ? Colour::kDim
                                                                      : Colour::kRed);
  }
  return table;
}

}  // namespace cairn::cli
