#include "common/rpc/testing/unproven_calls.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "agent/testing/agent_fixture.h"
#include "agent/testing/running_agent.h"
#include "cairn/v1/transfer_service.pb.h"

namespace cairn {
namespace {

using UnprovenCallsTest = AgentFixture;

TEST_F(UnprovenCallsTest, Agent_EveryMethodWithoutAToken_IsRefused) {
  AgentOptions options = Options();
  options.token_file = directory_ + "/token";
  std::ofstream(options.token_file) << "0123456789abcdef-token";
  std::filesystem::permissions(options.token_file, std::filesystem::perms::owner_read);
  testing::RunningAgent agent(options);
  testing::ExpectBadTokenForEveryMethod(agent.agent().transfer_address(),
                                        {v1::AwaitRoundRequest::descriptor()->file()});
}

}  // namespace
}  // namespace cairn
