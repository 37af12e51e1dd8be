#include "cli/views/operation_result.h"

#include "common/status/reason.h"
#include "common/status/status_proto.h"

namespace cairn::cli {

std::string ResultOf(const v1::Timeline& timeline) {
  if (!timeline.has_error()) return std::string(kOperationDone);
  const Reason reason = ReasonOf(StatusFromProto(timeline.error())).value_or(Reason::kInternal);
  const bool latest = timeline.kind() == v1::Timeline::LOAD && !timeline.has_step();
  return latest && reason == Reason::kNotCommitted ? std::string(kNothingToLoad) : std::string(InfoOf(reason).name);
}

}  // namespace cairn::cli
