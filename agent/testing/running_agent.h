// An agent in this process, with the server that its trainers call.
#ifndef CAIRN_AGENT_TESTING_RUNNING_AGENT_H_
#define CAIRN_AGENT_TESTING_RUNNING_AGENT_H_

#include <memory>
#include <string>

#include "agent/runtime/agent.h"
#include "agent/trainer_service/checkpoint_relay.h"
#include "agent/trainer_service/local_server.h"
#include "agent/trainer_service/local_service.h"
#include "agent/transport/host_exchange.h"

namespace cairn::testing {

// Starts as the binary does, with --insecure if no token file is given; a failure to start fails the test. The
// destructor ends it without leaving the job.
class RunningAgent {
 public:
  explicit RunningAgent(AgentOptions options, std::unique_ptr<Exchange> exchange = std::make_unique<HostExchange>());
  RunningAgent(const RunningAgent&) = delete;
  RunningAgent& operator=(const RunningAgent&) = delete;
  ~RunningAgent();

  // The target that a trainer connects to.
  std::string address() const { return "unix:" + server_->path(); }
  Agent& agent() const { return *agent_; }

 private:
  std::unique_ptr<Agent> agent_;
  std::unique_ptr<LocalService> service_;
  std::unique_ptr<CheckpointRelay> relay_;
  std::unique_ptr<LocalServer> server_;
};

}  // namespace cairn::testing

#endif  // CAIRN_AGENT_TESTING_RUNNING_AGENT_H_
