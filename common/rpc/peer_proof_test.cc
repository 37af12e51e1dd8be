#include "common/rpc/peer_proof.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"

namespace cairn {
namespace {

using Fault = ClientProof::Fault;
using State = ProofStep::State;

const std::string kToken = "a token of the test, long enough";
const std::string kOther = "another token, which is as long.";

EndAddress At(char last, char port) {
  EndAddress address{};
  address[10] = address[11] = '\xff';
  address[12] = 10;
  address[15] = last;
  address[17] = port;
  return address;
}

const ChannelView kClientView = {.own = At(1, 40), .peer = At(2, 74)};

std::shared_ptr<const PeerKeys> Keys(const std::vector<std::string>& tokens,
                                     ServerRole role = ServerRole::kCoordinator) {
  return PeerKeys::Of(tokens, role);
}

// Everything that the two sides said, in turn: the client's messages have even places.
struct Talk {
  std::vector<std::string> said;
  State client = State::kMore;
  State server = State::kMore;
};

// Changes a message on its way; `turn` is its place.
using Change = std::function<void(int turn, std::string& message)>;

Talk LetThemTalk(ClientProof& client, ServerProof& server, const Change& change = [](int, std::string&) {}) {
  Talk talk;
  ProofStep step = client.Begin();
  for (int turn = 0; !step.send.empty(); ++turn) {
    talk.said.push_back(step.send);
    std::string message = step.send;
    change(turn, message);
    if (message.empty()) break;
    if (turn % 2 == 0) {
      step = server.Take(message);
      talk.server = step.state;
    } else {
      step = client.Take(message);
      talk.client = step.state;
    }
  }
  return talk;
}

struct Sides {
  explicit Sides(std::shared_ptr<const PeerKeys> client_keys = Keys({kToken}),
                 std::shared_ptr<const PeerKeys> server_keys = Keys({kToken}), ChannelView server_view = {},
                 bool within_machine = true)
      : client(std::move(client_keys), kClientView, within_machine),
        server(std::move(server_keys), server_view == ChannelView{} ? kClientView.TurnedRound() : server_view) {}
  ClientProof client;
  ServerProof server;
};

TEST(PeerProofTest, Talk_SameToken_BothProven) {
  Sides sides;
  const Talk talk = LetThemTalk(sides.client, sides.server);
  EXPECT_EQ(talk.client, State::kProven);
  EXPECT_EQ(talk.server, State::kProven);
  ASSERT_EQ(talk.said.size(), 4u);
  EXPECT_EQ(talk.said[0].size(), ServerProof::kHelloBytes);
  EXPECT_EQ(talk.said[1].size(), ServerProof::kAnswerBytes);
  EXPECT_EQ(talk.said[2].size(), ServerProof::kProofBytes);
  for (const std::string& each : talk.said) EXPECT_EQ(each.find(kToken), std::string::npos);
}

// The values were computed by Python's hmac module, from the description in the header.
TEST(PeerProofTest, Talk_KnownNonces_SaysWhatAnotherImplementationSays) {
  ClientProof client(Keys({kToken}), kClientView, true, std::string(kNonceBytes, 'c'));
  ServerProof server(Keys({kOther, kToken}), kClientView.TurnedRound(), std::string(kNonceBytes, 's'));
  const Talk talk = LetThemTalk(client, server);
  ASSERT_EQ(talk.said.size(), 4u);
  EXPECT_EQ(absl::BytesToHexString(talk.said[1].substr(ServerProof::kAnswerBytes - 2 * kMacBytes)),
            "ccfeedf0f231bfe1bfc1cea0f9f44a845cbea2cf3c7599046d0a82c4eb4ca5874fbcabba9c7efe6f5a590042f636608c6f51ba327b"
            "125b2974bdf0da63b80675");
  EXPECT_EQ(absl::BytesToHexString(talk.said[2]), "c25163ef9cd01a4a07b22514785131cce8ba7582c6df4799affafb3899ee2bcb");
}

TEST(PeerProofTest, Talk_TokensAreChanged_AnyCommonOneServes) {
  const std::vector<std::vector<std::string>> sets = {{kToken}, {kOther}, {kToken, kOther}, {kOther, kToken}};
  for (const auto& at_client : sets) {
    for (const auto& at_server : sets) {
      Sides sides(Keys(at_client), Keys(at_server));
      const bool common = at_client.size() + at_server.size() > 2 || at_client == at_server;
      const Talk talk = LetThemTalk(sides.client, sides.server);
      EXPECT_EQ(talk.client == State::kProven, common);
      EXPECT_EQ(talk.server == State::kProven, common);
      if (!common) {
        EXPECT_EQ(sides.client.fault(), Fault::kOtherToken);
      }
    }
  }
}

TEST(PeerProofTest, ServerTake_ThirdToken_IsNotAsked) {
  Sides sides(Keys({kToken}), Keys({kOther, kOther + "2", kToken}));
  EXPECT_EQ(LetThemTalk(sides.client, sides.server).client, State::kRefused);
}

TEST(PeerProofTest, Talk_OtherRoleOfTheServer_IsRefused) {
  Sides sides(Keys({kToken}, ServerRole::kCoordinator), Keys({kToken}, ServerRole::kAgent));
  const Talk talk = LetThemTalk(sides.client, sides.server);
  EXPECT_EQ(talk.client, State::kRefused);
  EXPECT_EQ(sides.client.fault(), Fault::kOtherToken);
  EXPECT_EQ(talk.said.size(), 2u) << "the client has proven something to it";
}

TEST(PeerProofTest, Talk_ServerWithoutAToken_IsRefusedByName) {
  Sides sides(Keys({kToken}), nullptr);
  EXPECT_EQ(LetThemTalk(sides.client, sides.server).client, State::kRefused);
  EXPECT_EQ(sides.client.fault(), Fault::kInsecure);
}

TEST(PeerProofTest, Talk_OtherVersion_IsRefusedByName) {
  Sides sides;
  const Talk talk = LetThemTalk(sides.client, sides.server, [](int turn, std::string& message) {
    if (turn == 0) message[7] = '2';
  });
  EXPECT_EQ(talk.server, State::kRefused);
  EXPECT_EQ(sides.client.fault(), Fault::kOtherVersion);
}

TEST(PeerProofTest, Talk_ARelay_IsRefusedWithinTheMachineOnly) {
  const ChannelView of_relay = {.own = At(2, 75), .peer = At(1, 41)};
  for (const bool within_machine : {true, false}) {
    Sides sides(Keys({kToken}), Keys({kToken}), of_relay, within_machine);
    const Talk talk = LetThemTalk(sides.client, sides.server);
    EXPECT_EQ(talk.client, within_machine ? State::kRefused : State::kProven);
    EXPECT_EQ(sides.client.fault(), within_machine ? Fault::kRelayed : Fault::kNone);
    EXPECT_EQ(talk.server == State::kProven, !within_machine);
  }
}

// The relay sends each side the view that it would see without a relay.
TEST(PeerProofTest, Talk_ARelayThatChangesTheViews_IsRefused) {
  const ChannelView of_relay = {.own = At(2, 75), .peer = At(1, 41)};
  Sides sides(Keys({kToken}), Keys({kToken}), of_relay);
  const Talk talk = LetThemTalk(sides.client, sides.server, [&](int turn, std::string& message) {
    if (turn == 0) message.replace(8 + kNonceBytes, ChannelView::kBytes, of_relay.TurnedRound().Bytes());
    if (turn == 1) message.replace(1 + kNonceBytes, ChannelView::kBytes, kClientView.TurnedRound().Bytes());
  });
  EXPECT_EQ(talk.client, State::kRefused);
  EXPECT_NE(talk.server, State::kProven);
}

TEST(PeerProofTest, Talk_AnyByteChanged_NobodyIsDeceived) {
  Sides valid;
  const Talk lengths = LetThemTalk(valid.client, valid.server);
  for (int turn = 0; turn < 4; ++turn) {
    const size_t bytes = lengths.said[static_cast<size_t>(turn)].size();
    for (size_t at = 0; at < bytes; ++at) {
      for (const char flip : {'\x01', '\x80'}) {
        Sides sides;
        const Talk talk = LetThemTalk(sides.client, sides.server, [&](int now, std::string& message) {
          if (now == turn) message[at] = static_cast<char>(message[at] ^ flip);
        });
        // Neither side accepts a changed message or what follows from it. The answer's second MAC may be that of a
        // token that the client does not know, but the proof covers it too.
        EXPECT_NE(talk.client, State::kProven) << "message " << turn << ", byte " << at;
        if (turn < 3) {
          EXPECT_NE(talk.server, State::kProven) << "message " << turn << ", byte " << at;
        }
      }
    }
  }
}

TEST(PeerProofTest, Talk_AnyMessageCutShort_WaitsForTheRest) {
  Sides valid;
  const Talk lengths = LetThemTalk(valid.client, valid.server);
  for (int turn = 0; turn < 4; ++turn) {
    for (size_t keep = 1; keep < lengths.said[static_cast<size_t>(turn)].size(); ++keep) {
      Sides sides;
      const Talk talk = LetThemTalk(sides.client, sides.server, [&](int now, std::string& message) {
        if (now == turn) message.resize(keep);
      });
      EXPECT_EQ(turn % 2 == 0 ? talk.server : talk.client, State::kMore);
    }
  }
}

TEST(PeerProofTest, Take_ByteByByte_IsTheSame) {
  Sides sides;
  ProofStep at_client = sides.client.Begin();
  ProofStep at_server{.wanted = ServerProof::kHelloBytes};
  std::string to_server = at_client.send, to_client;
  while (at_client.state == State::kMore || at_server.state == State::kMore) {
    for (const char byte : std::exchange(to_server, "")) {
      ASSERT_GE(at_server.wanted, 1u);
      at_server = sides.server.Take({&byte, 1});
      to_client += at_server.send;
    }
    for (const char byte : std::exchange(to_client, "")) {
      ASSERT_GE(at_client.wanted, 1u);
      at_client = sides.client.Take({&byte, 1});
      to_server += at_client.send;
    }
  }
  EXPECT_EQ(at_client.state, State::kProven);
  EXPECT_EQ(at_server.state, State::kProven);
}

TEST(PeerProofTest, Take_MoreThanWasWanted_IsRefused) {
  Sides sides;
  EXPECT_EQ(sides.server.Take(sides.client.Begin().send + "P").state, State::kRefused);
  EXPECT_EQ(sides.client.Take(std::string(ServerProof::kAnswerBytes + 1, '\1')).state, State::kRefused);
}

// What was heard on one connection proves nothing on the next one.
TEST(PeerProofTest, Take_MessagesOfAnEarlierConnection_ProveNothing) {
  Sides first;
  const Talk heard = LetThemTalk(first.client, first.server);
  ServerProof server(Keys({kToken}), kClientView.TurnedRound());
  EXPECT_EQ(server.Take(heard.said[0]).state, State::kMore);
  EXPECT_EQ(server.Take(heard.said[2]).state, State::kRefused);
  ClientProof client(Keys({kToken}), kClientView, true);
  client.Begin();
  EXPECT_EQ(client.Take(heard.said[1]).state, State::kRefused);
  EXPECT_EQ(client.fault(), Fault::kOtherToken);
}

// A stranger sends a side its own messages back, of this connection or of another one.
TEST(PeerProofTest, Take_OwnMessagesSentBack_ProveNothing) {
  ServerProof server(Keys({kToken}), kClientView.TurnedRound());
  const ProofStep answer = server.Take(ClientProof(Keys({kOther}), kClientView, true).Begin().send);
  EXPECT_EQ(server.Take(answer.send.substr(ServerProof::kAnswerBytes - kMacBytes)).state, State::kRefused);

  // The stranger has no key, so it lets the server answer for it, as one that is called, and as one that calls.
  ServerProof other(Keys({kToken}), kClientView.TurnedRound());
  ServerProof asked(Keys({kToken}), kClientView.TurnedRound());
  std::string hello = ClientProof(Keys({kOther}), kClientView, true).Begin().send;
  const ProofStep first = other.Take(hello);
  hello.replace(8, kNonceBytes, first.send.substr(1, kNonceBytes));
  const ProofStep second = asked.Take(hello);
  EXPECT_EQ(other.Take(second.send.substr(ServerProof::kAnswerBytes - kMacBytes)).state, State::kRefused);
}

TEST(PeerProofTest, ClientTake_WhatOtherServersSay_IsNoProof) {
  for (const std::string& said : {std::string("\0\0\x18\4\0\0\0\0\0", 9), std::string("HTTP/1.1 400 Bad Request\r\n"),
                                  std::string("SSH-2.0\r\n")}) {
    ClientProof client(Keys({kToken}), kClientView, true);
    client.Begin();
    EXPECT_EQ(client.Take(said).state, State::kRefused) << said;
    EXPECT_EQ(client.fault(), Fault::kNoProof) << said;
  }
}

TEST(PeerProofTest, IsHello_BeginningsOfProtocols_AreToldApart) {
  const std::string hello = ClientProof(Keys({kToken}), kClientView, true).Begin().send;
  for (size_t bytes = 1; bytes <= hello.size(); ++bytes) EXPECT_TRUE(IsHello(hello.substr(0, bytes)));
  for (const char* other :
       {"", "P", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET / HTTP/1.1\r\n", "CAIRO", "\x16\x03\x01"}) {
    EXPECT_FALSE(IsHello(other)) << other;
  }
}

}  // namespace
}  // namespace cairn
