#include "common/rpc/peer_dial.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/rpc/testing/fake_peer.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

using testing::FakePeer;

const std::string kToken = "a token of the test, long enough";
const auto kKeys = PeerKeys::Of({kToken}, ServerRole::kCoordinator);
constexpr absl::Duration kPatience = absl::Seconds(30);

absl::StatusOr<UniqueFd> Dial(const std::string& address, const std::shared_ptr<const PeerKeys>& keys = kKeys,
                              absl::Duration timeout = kPatience) {
  return DialPeer({.address = address, .name = address, .keys = keys}, timeout);
}

FakePeer::Behaviour Proves(std::shared_ptr<const PeerKeys> keys = kKeys) {
  return [keys](FakePeer& peer, int connection) {
    if (peer.Prove(connection, keys)) FakePeer::Send(connection, "welcome");
    peer.Receive(connection, 1);  // until the caller goes
  };
}

void Silent(FakePeer& peer, int connection) { peer.Receive(connection, 1 << 20); }
void SpeaksHttp2(FakePeer& peer, int connection) {
  FakePeer::Send(connection, std::string("\0\0\0\4\0\0\0\0\0", 9));
  peer.Receive(connection, 1 << 20);
}
void Closes(FakePeer&, int) {}

TEST(PeerDialTest, DialPeer_ServerProvesItself_ReadsNothingBeyondTheProof) {
  FakePeer server(Proves());
  const auto connection = Dial(server.address());
  ASSERT_TRUE(connection.ok()) << connection.status();
  char welcome[8] = {};
  size_t size = 0;
  while (size < 7) {
    const ssize_t came = recv(connection->get(), welcome + size, 7 - size, 0);
    if (came > 0) size += static_cast<size_t>(came);
    if (came == 0) break;
  }
  EXPECT_STREQ(welcome, "welcome");
  EXPECT_FALSE(absl::StrContains(server.heard(), kToken));
}

TEST(PeerDialTest, DialPeer_NothingListens_SaysSo) {
  const absl::Status error = Dial("127.0.0.1:1").status();
  EXPECT_EQ(ReasonOf(error), Reason::kCoordinatorUnreachable);
  EXPECT_EQ(error.message(), "coordinator 127.0.0.1:1 is not there: nothing listens at that address");
  EXPECT_EQ(MetadataOf(error).at("detail"), "127.0.0.1:1: Connection refused");
}

TEST(PeerDialTest, DialPeer_NameWithoutAnAddress_SaysSo) {
  const absl::Status error = Dial("no-such-host.invalid:1").status();
  EXPECT_EQ(ReasonOf(error), Reason::kCoordinatorUnreachable);
  EXPECT_TRUE(absl::StrContains(error.message(), "cannot be found: its name has no address")) << error;
}

TEST(PeerDialTest, DialPeer_ServerIsSilent_EndsInTime) {
  FakePeer server(Silent);
  const absl::Status error = Dial(server.address(), kKeys, absl::Milliseconds(50)).status();
  EXPECT_EQ(ReasonOf(error), Reason::kCoordinatorUnreachable);
  EXPECT_TRUE(absl::StrContains(error.message(), "does not answer")) << error;
}

TEST(PeerDialTest, DialPeer_ServerClosesAtOnce_SaysSo) {
  FakePeer server(Closes);
  const absl::Status error = Dial(server.address()).status();
  EXPECT_EQ(ReasonOf(error), Reason::kCoordinatorUnreachable);
  EXPECT_TRUE(absl::StrContains(error.message(), "closes each new connection at once")) << error;
}

TEST(PeerDialTest, DialPeer_ServerDoesNotProveItself_IsRefusedAndHearsNoToken) {
  const struct {
    FakePeer::Behaviour behaviour;
    const char* text;
  } kStrangers[] = {
      {Proves(PeerKeys::Of({"another token, just as long"}, ServerRole::kCoordinator)), "it has another one"},
      {Proves(PeerKeys::Of({kToken}, ServerRole::kAgent)), "it has another one"},
      {Proves(nullptr), "asks for no token"},
      {SpeaksHttp2, "it is something else"},
  };
  for (const auto& [behaviour, text] : kStrangers) {
    FakePeer stranger(behaviour);
    const absl::Status error = Dial(stranger.address()).status();
    EXPECT_EQ(ReasonOf(error), Reason::kBadToken) << error;
    EXPECT_TRUE(absl::StrContains(error.message(), text)) << error;
    EXPECT_FALSE(NextActionOf(error).empty());
    EXPECT_FALSE(absl::StrContains(stranger.heard(), kToken));
  }
}

// A stranger has taken the other address of a name before the coordinator's one.
TEST(PeerDialTest, DialPeer_StrangerAtTheOtherAddressOfTheName_FindsTheOneThatProvesItself) {
  for (const FakePeer::Behaviour& behaviour :
       {FakePeer::Behaviour(Silent), FakePeer::Behaviour(SpeaksHttp2), FakePeer::Behaviour(Closes), Proves(nullptr)}) {
    FakePeer server(Proves());
    FakePeer stranger(behaviour, AF_INET6, server.port());
    if (!stranger.ok()) GTEST_SKIP() << "this system has no loopback of IPv6, or the port is taken there";
    const auto connection = Dial(absl::StrCat("localhost:", server.port()));
    ASSERT_TRUE(connection.ok()) << connection.status();
    EXPECT_FALSE(absl::StrContains(stranger.heard(), kToken));
  }
}

// It hands on all that the two say, and both are right about the token.
TEST(PeerDialTest, DialPeer_RelayOnThisMachine_IsRefused) {
  FakePeer server(Proves());
  FakePeer relay([&](FakePeer& self, int connection) {
    const auto onward = DialPeer({.address = server.address(), .name = "", .plain = true}, kPatience);
    ASSERT_TRUE(onward.ok()) << onward.status();
    fcntl(onward->get(), F_SETFL, 0);  // it may block
    FakePeer::Send(onward->get(), self.Receive(connection, ServerProof::kHelloBytes));
    FakePeer::Send(connection, self.Receive(onward->get(), ServerProof::kAnswerBytes));
    const std::string proof = self.Receive(connection, ServerProof::kProofBytes);
    if (proof.empty()) return;
    FakePeer::Send(onward->get(), proof);
    FakePeer::Send(connection, self.Receive(onward->get(), 1));
  });
  const absl::Status error = Dial(relay.address()).status();
  EXPECT_EQ(ReasonOf(error), Reason::kBadToken) << error;
  EXPECT_TRUE(absl::StrContains(error.message(), "through another process of this machine")) << error;
}

TEST(PeerDialTest, DialPeer_NoToken_IsPlainOnlyWhereThatIsSaid) {
  FakePeer server(Silent);
  EXPECT_TRUE(DialPeer({.address = server.address(), .name = "it", .plain = true}, kPatience).ok());
  const absl::Status error = DialPeer({.address = server.address(), .name = "it"}, kPatience).status();
  EXPECT_EQ(ReasonOf(error), Reason::kBadToken) << error;
  EXPECT_TRUE(absl::StrContains(error.message(), "no token was found")) << error;
}

TEST(PeerDialTest, DialPeer_Cancelled_EndsAtOnce) {
  FakePeer server(Silent);
  const UniqueFd cancelled(eventfd(1, 0));
  const auto connection =
      DialPeer({.address = server.address(), .name = "it", .keys = kKeys}, absl::Hours(1), cancelled.get());
  EXPECT_EQ(ReasonOf(connection.status()), Reason::kInterrupted);
}

}  // namespace
}  // namespace cairn
