#include "cli/views/chrome_trace.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cli/views/operation_result.h"
#include "common/base/enum_text.h"
#include "common/base/time_proto.h"

namespace cairn::cli {
namespace {

using Json = nlohmann::ordered_json;
using Spans = google::protobuf::RepeatedPtrField<v1::TimelineSpan>;

int64_t Microseconds(const google::protobuf::Duration& duration) {
  return absl::ToInt64Microseconds(DurationOf(duration));
}

std::string NameOf(const v1::Timeline& timeline) {
  std::string name = EnumText(timeline.kind());
  absl::StrAppend(&name, " of ", timeline.job());
  if (timeline.has_step()) absl::StrAppend(&name, "@", timeline.step());
  if (timeline.attempt() > 0) absl::StrAppend(&name, ", attempt ", timeline.attempt());
  if (timeline.has_error()) absl::StrAppend(&name, ", ", ResultOf(timeline));
  return name;
}

// Makes the events of one operation, as the process `pid`.
class OperationTrace {
 public:
  OperationTrace(const v1::Timeline& timeline, int pid, int64_t begin, Json& events)
      : timeline_(timeline), pid_(pid), begin_(begin), events_(events) {}

  void Add() {
    AddName("process_name", 0, NameOf(timeline_));
    AddName("thread_name", 0, "all ranks");
    AddSlices(0, timeline_.spans());
    std::map<uint32_t, bool> shown;
    for (const v1::RankTimeline& rank : timeline_.ranks()) {
      shown[rank.rank()] = true;
      AddName("thread_name", TrackOf(rank.rank()), absl::StrCat("rank ", rank.rank()));
      AddSlices(TrackOf(rank.rank()), rank.spans());
    }
    for (const v1::RankTimeline& rank : timeline_.ranks()) {
      for (const v1::TimelineSpan& span : rank.spans()) {
        for (uint32_t awaited : span.awaited_ranks()) {
          if (shown.contains(awaited)) AddArrow(awaited, rank.rank(), span);
        }
      }
    }
  }

 private:
  // Track 0 is the whole operation.
  static uint32_t TrackOf(uint32_t rank) { return rank + 1; }

  void AddName(const char* what, uint32_t track, const std::string& name) {
    events_.push_back({{"ph", "M"}, {"name", what}, {"pid", pid_}, {"tid", track}, {"args", {{"name", name}}}});
  }
  void AddSlices(uint32_t track, const Spans& spans) {
    for (const v1::TimelineSpan& span : spans) {
      Json slice = {{"ph", "X"},
                    {"name", EnumText(span.phase())},
                    {"cat", EnumText(timeline_.kind())},
                    {"pid", pid_},
                    {"tid", track},
                    {"ts", begin_ + Microseconds(span.begin())},
                    {"dur", Microseconds(span.end()) - Microseconds(span.begin())}};
      if (span.awaited_ranks_size() > 0) {
        Json awaited = Json::array();
        for (uint32_t rank : span.awaited_ranks()) awaited.push_back(rank);
        slice["args"]["waits_for_ranks"] = std::move(awaited);
      }
      events_.push_back(std::move(slice));
    }
  }
  // An arrow must begin and end inside of slices. The end of a slice is not inside it.
  void AddArrow(uint32_t from, uint32_t to, const v1::TimelineSpan& span) {
    const int64_t at = begin_ + std::max(Microseconds(span.begin()), Microseconds(span.end()) - 1);
    const std::string id = absl::StrCat(pid_, ".", ++arrows_);
    events_.push_back({{"ph", "s"},
                       {"name", "awaited"},
                       {"cat", "wait"},
                       {"id", id},
                       {"pid", pid_},
                       {"tid", TrackOf(from)},
                       {"ts", at}});
    events_.push_back({{"ph", "f"},
                       {"bp", "e"},
                       {"name", "awaited"},
                       {"cat", "wait"},
                       {"id", id},
                       {"pid", pid_},
                       {"tid", TrackOf(to)},
                       {"ts", at}});
  }

  const v1::Timeline& timeline_;
  const int pid_;
  const int64_t begin_;
  Json& events_;
  int arrows_ = 0;
};

}  // namespace

nlohmann::ordered_json ChromeTrace(const std::vector<v1::Timeline>& timelines) {
  absl::Time first = absl::InfiniteFuture();
  for (const v1::Timeline& timeline : timelines) first = std::min(first, TimeOf(timeline.begin_time()));
  Json events = Json::array();
  int pid = 0;
  for (const v1::Timeline& timeline : timelines) {
    const int64_t begin = absl::ToInt64Microseconds(TimeOf(timeline.begin_time()) - first);
    OperationTrace(timeline, ++pid, begin, events).Add();
  }
  Json trace = {{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}};
  if (first < absl::InfiniteFuture()) {
    trace["otherData"]["begin_time"] = absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", first, absl::UTCTimeZone());
  }
  return trace;
}

}  // namespace cairn::cli
