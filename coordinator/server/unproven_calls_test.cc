#include "common/rpc/testing/unproven_calls.h"

#include <gtest/gtest.h>

#include <string>

#include "cairn/v1/agent_coordination_service.pb.h"
#include "cairn/v1/checkpoint_service.pb.h"
#include "cairn/v1/monitoring_service.pb.h"
#include "common/base/clock.h"
#include "common/base/random_id.h"
#include "coordinator/server/server.h"
#include "store/posix/posix_storage.h"
#include "store/storage/testing/fake_root_lock.h"

namespace cairn {
namespace {

TEST(UnprovenCallsTest, Coordinator_EveryMethodWithoutAToken_IsRefused) {
  const auto storage = PosixStorage::Open(std::string(::testing::TempDir()) + "/root-" + RandomToken(6), true);
  ASSERT_TRUE(storage.ok()) << storage.status();
  ServerOptions options;
  options.tokens = TokenSource::Of({"0123456789abcdef-token"});
  const FakeRootLock lock;
  const auto server = CoordinatorServer::Start(options, **storage, lock, Clock::Real());
  ASSERT_TRUE(server.ok()) << server.status();
  testing::ExpectBadTokenForEveryMethod((*server)->address(),
                                        {v1::Checkpoint::descriptor()->file(), v1::AgentState::descriptor()->file(),
                                         v1::ListJobsRequest::descriptor()->file()});
}

}  // namespace
}  // namespace cairn
