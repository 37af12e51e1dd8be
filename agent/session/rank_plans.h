// Holds what the coordinator has planned for this rank, as far as it has come: parts of plans, the images made of them,
// and the addresses of the ranks that they name.
#ifndef CAIRN_AGENT_SESSION_RANK_PLANS_H_
#define CAIRN_AGENT_SESSION_RANK_PLANS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/session/peer_book.h"
#include "agent/session/save_image.h"
#include "agent/session/session_context.h"

namespace cairn {

// A part that somebody wants, and that is not here, is asked for once. Whoever wants it calls again when it has come.
// Not thread-safe.
class RankPlans {
 public:
  // `context` must outlive it.
  explicit RankPlans(SessionContext& context) : context_(context) {}

  // Holds what the coordinator says of the save plan of the job's newest layouts.
  struct Current {
    std::string digest;  // empty while there is none
    bool check_replicas = false;
    bool sample_replicas = false;
  };
  const Current& current() const { return current_; }
  void SetCurrent(Current current) { current_ = std::move(current); }
  void ForgetCurrent() { current_.digest.clear(); }

  // The newest image that an order or a prepare gave, which the next save of its layout follows unasked; null for none.
  const SaveImagePtr& newest() const { return newest_; }
  void SetNewest(SaveImagePtr image) { newest_ = std::move(image); }

  // Returns the bytes of a plan if they are here; else it asks for them and returns null. `known` is the digest of a
  // plan whose part may be the same.
  const std::string* Want(const std::string& digest, const std::string& known = "");
  // Returns the image of a plan for this layout, or null while the plan is being fetched. Errors are those of
  // MakeSaveImage, and INTERNAL if the coordinator has sent something else.
  absl::StatusOr<SaveImagePtr> WantImage(const std::string& plan_digest, const RankLayoutPtr& layout);
  // Returns the agents of these ranks, as far as there are any, or nothing while the coordinator is asked.
  std::optional<PeerMap> WantPeers(const std::vector<uint32_t>& ranks);

  // These take the answers. They return true if what came may let a save or load go on.
  bool OnPlan(const std::string& digest, absl::StatusOr<std::string> bytes);
  bool OnPeers(const std::vector<uint32_t>& ranks, const absl::StatusOr<v1::GetTransferPeersResponse>& answer);
  PeerBook& peers() { return peers_; }

 private:
  SessionContext& context_;
  Current current_;
  SaveImagePtr newest_;
  std::map<std::string, std::string> plans_;  // fetched ones, each a serialized WritePlan or ReadPlan
  std::deque<std::string> order_;
  std::set<std::string> gets_;                  // plans that are being fetched
  std::map<std::string, SaveImagePtr> images_;  // those of plans_, by plan digest
  PeerBook peers_;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_SESSION_RANK_PLANS_H_
