// Keeps what the coordinator said of where other agents are, for as long as that is true.
#ifndef CAIRN_AGENT_SESSION_PEER_BOOK_H_
#define CAIRN_AGENT_SESSION_PEER_BOOK_H_

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/statusor.h"
#include "cairn/v1/agent_coordination_service.pb.h"

namespace cairn {

// Agents of other ranks, by rank.
using PeerMap = std::map<uint32_t, v1::TransferPeer>;

// The agents of a job at one time. A restarted coordinator counts its memberships anew, under a later epoch of its own.
struct MembershipEpoch {
  uint64_t coordinator = 0;
  uint64_t membership = 0;
  auto operator<=>(const MembershipEpoch&) const = default;
};

// An entry names an agent process by its incarnation. In another membership another process may hold the rank, so the
// book is emptied when the epoch changes. It holds one entry for each rank that this rank's plans have named since
// then. A pure function of calls. Not thread-safe.
class PeerBook {
 public:
  // The agent has registered: this membership counts now, whatever was heard before.
  void Begin(MembershipEpoch now);
  // The coordinator has spoken of this membership. An earlier one than the book's changes nothing: that message was
  // overtaken by a later one.
  void Heard(MembershipEpoch now);

  // The agents of `ranks`, without ranks that nobody holds. Nothing while one of them has not been asked for.
  std::optional<PeerMap> Find(const std::vector<uint32_t>& ranks) const;
  // The requests for those of `ranks` that are neither known nor being asked for. Each has at most kMaxTransferPeers
  // ranks, and must be answered by a call of Answer.
  std::vector<std::vector<uint32_t>> Ask(const std::vector<uint32_t>& ranks);
  // The answer to the request for `asked`. An error and an answer of an earlier membership leave them unknown.
  void Answer(const std::vector<uint32_t>& asked, const absl::StatusOr<v1::GetTransferPeersResponse>& answer);

 private:
  MembershipEpoch epoch_;
  std::map<uint32_t, std::optional<v1::TransferPeer>> known_;  // nothing for a rank that nobody holds
  std::set<uint32_t> asked_;                                   // being asked for
};

}  // namespace cairn

#endif  // CAIRN_AGENT_SESSION_PEER_BOOK_H_
