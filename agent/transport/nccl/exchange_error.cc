#include "agent/transport/nccl/exchange_error.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/duration_text.h"
#include "common/rpc/exchange_fault.h"
#include "common/status/reason.h"

namespace cairn {

absl::Status ExchangeStepError(const absl::Status& error, std::string_view window, const std::set<uint32_t>& peers,
                               uint32_t own_rank, absl::Duration stall_timeout) {
  const std::string named = absl::StrJoin(peers, ", ");
  const std::string where = absl::StrCat(std::string(window), " of the exchange over NCCL with ",
                                         peers.size() == 1 ? "rank " : "ranks ", named);
  if (HasReason(error, Reason::kTimedOut)) {
    ErrorMetadata metadata = {{"ranks", named}, {std::string(kStepStalled), "yes"}};
    if (peers.size() == 1) metadata.emplace_back("source_rank", named);
    return MakeError(Reason::kTransportFailed,
                     absl::StrCat(where, " has made no progress for ", DurationText(stall_timeout)), metadata);
  }
  ErrorMetadata metadata;
  if (MetadataOf(error).contains(std::string(kWorkerAtFault))) {
    metadata = {{"ranks", absl::StrCat(own_rank)}, {std::string(kWorkerAtFault), "yes"}};
  }
  return MakeError(Reason::kTransportFailed, absl::StrCat(where, ": ", error.message()), metadata);
}

}  // namespace cairn
