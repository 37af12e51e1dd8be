// Sends a layout to the coordinator, part by part.
#ifndef CAIRN_AGENT_RUNTIME_LAYOUT_UPLOAD_H_
#define CAIRN_AGENT_RUNTIME_LAYOUT_UPLOAD_H_

#include <cstdint>

#include "absl/status/status.h"
#include "agent/session/rank_layout.h"
#include "cairn/v1/agent_coordination_service.pb.h"

namespace cairn {

// The coordinator says after each part where the next one begins, because it may have parts of an earlier upload.
// `layout` must outlive it. Not thread-safe.
class LayoutUpload {
 public:
  explicit LayoutUpload(const RankLayout& layout) : layout_(layout) {}

  bool done() const { return done_; }
  // The next part, of at most kChunkBytes (link_limits.h).
  v1::PutLayoutRequest Next() const;
  // The answer to that part. INTERNAL: it asks for what was sent already, or for more than there is.
  absl::Status Take(const v1::PutLayoutResponse& response);

 private:
  const RankLayout& layout_;
  uint64_t offset_ = 0;
  bool done_ = false;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_RUNTIME_LAYOUT_UPLOAD_H_
