#include "agent/session/peer_book.h"

#include "common/rpc/peer_limits.h"

namespace cairn {

void PeerBook::Begin(MembershipEpoch now) {
  if (now != epoch_) known_.clear();
  epoch_ = now;
}

void PeerBook::Heard(MembershipEpoch now) {
  if (now > epoch_) Begin(now);
}

std::optional<PeerMap> PeerBook::Find(const std::vector<uint32_t>& ranks) const {
  PeerMap found;
  for (const uint32_t rank : ranks) {
    const auto known = known_.find(rank);
    if (known == known_.end()) return std::nullopt;
    if (known->second.has_value()) found.emplace(rank, *known->second);
  }
  return found;
}

std::vector<std::vector<uint32_t>> PeerBook::Ask(const std::vector<uint32_t>& ranks) {
  std::vector<std::vector<uint32_t>> requests;
  for (const uint32_t rank : ranks) {
    if (known_.contains(rank) || !asked_.insert(rank).second) continue;
    if (requests.empty() || requests.back().size() == kMaxTransferPeers) requests.emplace_back();
    requests.back().push_back(rank);
  }
  return requests;
}

void PeerBook::Answer(const std::vector<uint32_t>& asked, const absl::StatusOr<v1::GetTransferPeersResponse>& answer) {
  for (const uint32_t rank : asked) asked_.erase(rank);
  if (!answer.ok()) return;
  const MembershipEpoch told = {answer->coordinator_epoch(), answer->membership_epoch()};
  if (told < epoch_) return;
  Heard(told);
  for (const uint32_t rank : asked) known_[rank] = std::nullopt;
  for (const v1::TransferPeer& peer : answer->peers()) {
    if (const auto known = known_.find(peer.rank()); known != known_.end()) known->second = peer;
  }
}

}  // namespace cairn
