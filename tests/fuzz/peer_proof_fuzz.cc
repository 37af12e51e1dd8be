#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "common/rpc/peer_proof.h"

namespace {

using cairn::ProofStep;

const auto kKeys = cairn::PeerKeys::Of({"a token that the input does not know"}, cairn::ServerRole::kCoordinator);

// Feeds a side in pieces, as a connection does. Nobody who does not know the token may pass, nothing may be sent after
// the end, and the side must say how much it wants.
template <typename Side>
void Feed(Side& side, std::string_view bytes, size_t piece, size_t wanted) {
  while (!bytes.empty()) {
    const size_t size = std::min({bytes.size(), piece, wanted});
    const ProofStep step = side.Take(bytes.substr(0, size));
    bytes.remove_prefix(size);
    if (step.state == ProofStep::kProven) std::abort();
    if (step.send.size() > cairn::ServerProof::kAnswerBytes) std::abort();
    if (step.state == ProofStep::kRefused) return;
    if (step.wanted == 0 || step.wanted > cairn::ServerProof::kAnswerBytes) std::abort();
    wanted = step.wanted;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  const size_t piece = size_t{data[1]} + 1;
  cairn::IsHello(bytes);
  if (data[0] % 2 == 0) {
    cairn::ServerProof server(data[0] % 4 == 0 ? kKeys : nullptr, {}, std::string(cairn::kNonceBytes, 'n'));
    Feed(server, bytes, piece, cairn::ServerProof::kHelloBytes);
  } else {
    cairn::ClientProof client(kKeys, {}, data[0] % 4 == 1, std::string(cairn::kNonceBytes, 'n'));
    Feed(client, bytes, piece, client.Begin().wanted);
  }
  return 0;
}
