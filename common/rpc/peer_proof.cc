#include "common/rpc/peer_proof.h"

#include <utility>

#include "common/base/random_id.h"

namespace cairn {
namespace {

// The version follows the magic, so that a server of another version can say so.
constexpr std::string_view kMagic = "CAIRN-P";
constexpr char kVersion = '1';
static_assert(kMagic.size() + 1 + kNonceBytes + ChannelView::kBytes == ServerProof::kHelloBytes);

// The first byte of an answer.
enum Answer : char { kProof = 1, kNoToken = 2, kVersionUnknown = 3 };
enum Outcome : char { kTaken = 1, kNotTaken = 2 };

// A refusal is as long as an answer with MACs.
std::string RefusingAnswer(Answer why) {
  std::string answer(ServerProof::kAnswerBytes, '\0');
  answer[0] = why;
  return answer;
}

}  // namespace

bool IsHello(std::string_view first_bytes) {
  return !first_bytes.empty() && kMagic.substr(0, first_bytes.size()) == first_bytes.substr(0, kMagic.size());
}

ServerProof::ServerProof(std::shared_ptr<const PeerKeys> keys, ChannelView view)
    : ServerProof(std::move(keys), view, RandomBytes(kNonceBytes)) {}

ServerProof::ServerProof(std::shared_ptr<const PeerKeys> keys, ChannelView view, std::string nonce)
    : keys_(std::move(keys)), view_(view), nonce_(std::move(nonce)) {}

ProofStep ServerProof::Take(std::string_view bytes) {
  if (bytes.size() > expected_ - received_.size()) return {.state = Step::kRefused};
  received_ += bytes;
  if (received_.size() < expected_) return {.state = Step::kMore, .wanted = expected_ - received_.size()};
  return said_.empty() ? TakeHello() : TakeProof();
}

ProofStep ServerProof::TakeHello() {
  if (!IsHello(received_)) return {.state = Step::kRefused};
  if (received_[kMagic.size()] != kVersion) return {.state = Step::kRefused, .send = RefusingAnswer(kVersionUnknown)};
  if (keys_ == nullptr || keys_->keys().empty()) return {.state = Step::kRefused, .send = RefusingAnswer(kNoToken)};
  std::string answer(1, kProof);
  answer += nonce_;
  answer += view_.Bytes();
  said_ = received_ + answer;
  std::string macs;
  for (size_t i = 0; i < kMaxServerTokens; ++i) {
    // If there is only one token, it is used for both MACs.
    macs += Mac(keys_->keys()[i < keys_->keys().size() ? i : 0].server, said_);
  }
  said_ += macs;
  answer += macs;
  received_.clear();
  expected_ = kProofBytes;
  return {.state = Step::kMore, .send = std::move(answer), .wanted = kProofBytes};
}

ProofStep ServerProof::TakeProof() {
  for (size_t i = 0; i < keys_->keys().size() && i < kMaxServerTokens; ++i) {
    if (SameMac(Mac(keys_->keys()[i].client, said_), received_)) {
      return {.state = Step::kProven, .send = std::string(1, kTaken)};
    }
  }
  return {.state = Step::kRefused, .send = std::string(1, kNotTaken)};
}

ClientProof::ClientProof(std::shared_ptr<const PeerKeys> keys, ChannelView view, bool within_machine)
    : ClientProof(std::move(keys), view, within_machine, RandomBytes(kNonceBytes)) {}

ClientProof::ClientProof(std::shared_ptr<const PeerKeys> keys, ChannelView view, bool within_machine, std::string nonce)
    : keys_(std::move(keys)), view_(view), within_machine_(within_machine), nonce_(std::move(nonce)) {}

ProofStep ClientProof::Begin() {
  said_ = std::string(kMagic) + kVersion + nonce_ + view_.Bytes();
  return {.state = Step::kMore, .send = said_, .wanted = expected_};
}

ProofStep ClientProof::Take(std::string_view bytes) {
  if (bytes.size() > expected_ - received_.size()) return Refuse(Fault::kNoProof);
  received_ += bytes;
  // Another kind of server may never send the remaining bytes, so a wrong first byte is refused at once.
  if (expected_ > 1 && !received_.empty() && (received_[0] < kProof || received_[0] > kVersionUnknown)) {
    return Refuse(Fault::kNoProof);
  }
  if (received_.size() < expected_) return {.state = Step::kMore, .wanted = expected_ - received_.size()};
  return expected_ > 1 ? TakeAnswer() : TakeOutcome();
}

ProofStep ClientProof::TakeAnswer() {
  if (received_[0] == kNoToken) return Refuse(Fault::kInsecure);
  if (received_[0] == kVersionUnknown) return Refuse(Fault::kOtherVersion);
  const std::string_view answer = received_;
  const std::string_view seen = answer.substr(1 + kNonceBytes, ChannelView::kBytes);
  const std::string_view macs = answer.substr(1 + kNonceBytes + ChannelView::kBytes);
  said_ += answer.substr(0, answer.size() - macs.size());
  const PeerKey* shared = nullptr;
  for (const PeerKey& key : keys_->keys()) {
    const std::string mac = Mac(key.server, said_);
    for (size_t i = 0; i < kMaxServerTokens && shared == nullptr; ++i) {
      if (SameMac(mac, macs.substr(i * kMacBytes, kMacBytes))) shared = &key;
    }
  }
  if (shared == nullptr) return Refuse(Fault::kOtherToken);
  if (within_machine_ && seen != view_.TurnedRound().Bytes()) return Refuse(Fault::kRelayed);
  said_ += macs;
  received_.clear();
  expected_ = 1;
  return {.state = Step::kMore, .send = Mac(shared->client, said_), .wanted = 1};
}

ProofStep ClientProof::TakeOutcome() {
  if (received_[0] != kTaken) return Refuse(Fault::kRefused);
  return {.state = Step::kProven};
}

ProofStep ClientProof::Refuse(Fault fault) {
  fault_ = fault;
  return {.state = Step::kRefused};
}

}  // namespace cairn
