#include "agent/runtime/layout_upload.h"

#include "absl/strings/str_cat.h"
#include "agent/runtime/link_limits.h"
#include "common/status/reason.h"

namespace cairn {

v1::PutLayoutRequest LayoutUpload::Next() const {
  v1::PutLayoutRequest request;
  request.set_digest(layout_.digest);
  request.set_total_bytes(layout_.bytes.size());
  request.set_offset(offset_);
  request.set_chunk(layout_.bytes.substr(offset_, link_limits::kChunkBytes));
  return request;
}

absl::Status LayoutUpload::Take(const v1::PutLayoutResponse& response) {
  const uint64_t received = response.received_bytes();
  done_ = received == layout_.bytes.size();
  if (!done_ && (received <= offset_ || received > layout_.bytes.size())) {
    return MakeError(Reason::kInternal,
                     absl::StrCat("after the chunk at ", offset_, " the coordinator wants ", received));
  }
  offset_ = received;
  return absl::OkStatus();
}

}  // namespace cairn
