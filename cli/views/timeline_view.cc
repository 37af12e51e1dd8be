#include "cli/views/timeline_view.h"

#include <utility>

#include "absl/time/time.h"
#include "cli/base/command.h"
#include "cli/views/checkpoint_view.h"
#include "cli/views/operation_result.h"
#include "common/base/enum_text.h"
#include "common/base/time_proto.h"
#include "common/status/status.h"
#include "common/status/status_proto.h"

namespace cairn::cli {
namespace {

using Json = nlohmann::ordered_json;

Json SpansToJson(const google::protobuf::RepeatedPtrField<v1::TimelineSpan>& spans) {
  Json json = Json::array();
  for (const v1::TimelineSpan& span : spans) {
    Json awaited = Json::array();
    for (uint32_t rank : span.awaited_ranks()) awaited.push_back(rank);
    json.push_back({{"phase", EnumText(span.phase())},
                    {"begin", absl::ToDoubleSeconds(DurationOf(span.begin()))},
                    {"end", absl::ToDoubleSeconds(DurationOf(span.end()))},
                    {"awaited_ranks", std::move(awaited)}});
  }
  return json;
}

}  // namespace

absl::StatusOr<std::vector<v1::Timeline>> FetchTimelines(CoordinatorClient& client, v1::ListTimelinesRequest request) {
  std::vector<v1::Timeline> timelines;
  do {
    v1::ListTimelinesResponse response;
    CAIRN_RETURN_IF_ERROR(client.Call(&v1::MonitoringService::Stub::ListTimelines, request, &response));
    timelines.insert(timelines.end(), response.timelines().begin(), response.timelines().end());
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  return timelines;
}

nlohmann::ordered_json TimelineToJson(const v1::Timeline& timeline) {
  Json json = {{"id", timeline.id()},
               {"kind", EnumText(timeline.kind())},
               {"step", nullptr},
               {"attempt", timeline.attempt()},
               {"begin_time", TimeText(timeline.begin_time())},
               {"duration", absl::ToDoubleSeconds(DurationOf(timeline.duration()))},
               {"bytes", timeline.bytes()},
               {"world_size", timeline.world_size()},
               {"result", ResultOf(timeline)},
               {"error", timeline.has_error() ? ErrorToJson(StatusFromProto(timeline.error())) : Json()},
               {"spans", SpansToJson(timeline.spans())},
               {"ranks", Json::array()},
               {"ranks_left_out", timeline.ranks_left_out()}};
  if (timeline.has_step()) json["step"] = timeline.step();
  for (const v1::RankTimeline& rank : timeline.ranks()) {
    json["ranks"].push_back({{"rank", rank.rank()}, {"spans", SpansToJson(rank.spans())}});
  }
  return json;
}

}  // namespace cairn::cli
