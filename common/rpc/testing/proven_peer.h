// Connects tests to real processes, with the proof of a token.
#ifndef CAIRN_COMMON_RPC_TESTING_PROVEN_PEER_H_
#define CAIRN_COMMON_RPC_TESTING_PROVEN_PEER_H_

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/ascii.h"
#include "common/base/clock.h"
#include "common/rpc/peer_channel.h"

namespace cairn::testing {

// Without a token the connection is plain.
inline std::shared_ptr<PeerChannel> CoordinatorAt(const std::string& address, const std::string& token,
                                                  int max_message_bytes = kMaxMessageBytes) {
  const std::string stripped(absl::StripAsciiWhitespace(token));
  return std::make_shared<PeerChannel>(PeerOptions{
      .address = address,
      .role = ServerRole::kCoordinator,
      .tokens = TokenSource::Of(stripped.empty() ? std::vector<std::string>{} : std::vector<std::string>{stripped}),
      .max_message_bytes = max_message_bytes});
}

// Connects to a peer that may still be starting; tries for a minute.
inline absl::StatusOr<PeerChannel::Channel> AwaitChannel(PeerChannel& peer) {
  for (const absl::Time end = Clock::Real().SteadyNow() + absl::Minutes(1);;) {
    auto channel = peer.Await();
    if (!absl::IsUnavailable(channel.status()) || Clock::Real().SteadyNow() >= end) return channel;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace cairn::testing

#endif  // CAIRN_COMMON_RPC_TESTING_PROVEN_PEER_H_
