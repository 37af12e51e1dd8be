// What the coordinator has planned for this rank, as far as it is here: parts of plans, the images made of them, and
// where the ranks are that they name.
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

// What is wanted and not here is asked for, once; whoever wants it asks again when it has come. Not thread-safe.
class RankPlans {
 public:
  // `context` must outlive it.
  explicit RankPlans(SessionContext& context) : context_(context) {}

  // What the coordinator says of the save plan of the job's newest layouts.
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

  // The bytes of a plan if they are there; else asks for them. `known`: the digest of a plan whose part may be the
  // same.
  const std::string* Want(const std::string& digest, const std::string& known = "");
  // The image of a plan for this layout; null while the plan is being fetched. Errors: MakeSaveImage's; INTERNAL: the
  // coordinator sent something else.
  absl::StatusOr<SaveImagePtr> WantImage(const std::string& plan_digest, const RankLayoutPtr& layout);
  // The agents of these ranks, as far as there are any; nothing while the coordinator is asked.
  std::optional<PeerMap> WantPeers(const std::vector<uint32_t>& ranks);

  // The answers. True if what came may let a save or load go on.
  bool OnPlan(const std::string& digest, absl::StatusOr<std::string> bytes);
  bool OnPeers(const std::vector<uint32_t>& ranks, const absl::StatusOr<v1::GetTransferPeersResponse>& answer);
  PeerBook& peers() { return peers_; }

 private:
  SessionContext& context_;
  Current current_;
  SaveImagePtr newest_;
  std::map<std::string, std::string> plans_;  // fetched: serialized WritePlan or ReadPlan
  std::deque<std::string> order_;
  std::set<std::string> gets_;                  // being fetched
  std::map<std::string, SaveImagePtr> images_;  // of plans_, by plan digest
  PeerBook peers_;
};

}  // namespace cairn

#endif  // CAIRN_AGENT_SESSION_RANK_PLANS_H_
