#include "common/rpc/transport_use.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

TEST(TransportUseTest, Text_NoTransport_IsEmpty) {
  EXPECT_EQ(TransportText({}), "");
  EXPECT_EQ(TransportText({{}, "rank 3 has --nccl=never"}), "");
}

TEST(TransportUseTest, Text_SeveralTransports_AreJoined) {
  EXPECT_EQ(TransportText({{v1::TRANSPORT_SHARED_MEMORY, v1::TRANSPORT_NCCL}, ""}), "shared-memory+nccl");
}

TEST(TransportUseTest, Text_Refusal_StandsBehindTheTransportThatTookTheBytes) {
  EXPECT_EQ(TransportText({{v1::TRANSPORT_SHARED_MEMORY, v1::TRANSPORT_GRPC}, "rank 3 has --nccl=never"}),
            "shared-memory+grpc (nccl: rank 3 has --nccl=never)");
}

TEST(TransportUseTest, Text_TransportOfALaterVersion_IsShownAsUnknown) {
  EXPECT_EQ(TransportText({{static_cast<v1::Transport>(9)}, ""}), "unknown (9)");
}

}  // namespace
}  // namespace cairn
