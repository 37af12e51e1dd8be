// A rank's part of a plan on its way from the coordinator, chunk by chunk.
#ifndef CAIRN_AGENT_RUNTIME_PLAN_DOWNLOAD_H_
#define CAIRN_AGENT_RUNTIME_PLAN_DOWNLOAD_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "cairn/v1/agent_coordination_service.pb.h"

namespace cairn {

// The largest part that is taken.
inline constexpr uint64_t kMaxPlanBytes = uint64_t{1} << 30;

// Not thread-safe. May run out of memory: see WithMemory (common/resources/memory.h).
class PlanDownload {
 public:
  // `known` is the part of another plan, or empty. If the rank has the same to do in both, nothing but that is sent.
  PlanDownload(std::string digest, std::string known);

  bool done() const { return done_; }
  v1::GetPlanRequest Next() const;
  // The answer to that request. INTERNAL: it does not fit what came before, or is larger than kMaxPlanBytes.
  absl::Status Take(const v1::GetPlanResponse& response);
  // The whole part, once it is done.
  std::string Plan() && { return std::move(plan_); }

 private:
  const std::string digest_;
  const std::string known_;
  const std::string known_digest_;
  std::string plan_;
  uint64_t total_ = 0;  // 0 until a chunk has said it
  bool done_ = false;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_RUNTIME_PLAN_DOWNLOAD_H_
