#include "agent/testing/running_agent.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

namespace cairn::testing {

RunningAgent::RunningAgent(AgentOptions options, std::unique_ptr<Exchange> exchange) {
  options.insecure = options.token_file.empty();
  auto agent = Agent::Start(options, std::move(exchange));
  EXPECT_TRUE(agent.ok()) << agent.status();
  agent_ = *std::move(agent);
  service_ = std::make_unique<LocalService>(*agent_);
  relay_ = std::make_unique<CheckpointRelay>(*agent_);
  auto server = LocalServer::Listen(options.socket_directory + "/agent.sock", UserPolicy(options.allowed_users),
                                    {service_.get(), relay_.get()});
  EXPECT_TRUE(server.ok()) << server.status();
  server_ = *std::move(server);
  service_->SetCallerLookup([this](const std::string& peer) { return server_->CallerOf(peer); });
  EXPECT_TRUE(server_->Serve().ok());
}

RunningAgent::~RunningAgent() {
  agent_->Quiesce();
  server_->Shutdown(absl::Milliseconds(200));
  agent_->Stop(false);
}

}  // namespace cairn::testing
