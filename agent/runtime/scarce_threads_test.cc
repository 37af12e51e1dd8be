// An agent that the system refuses a thread at its start, whichever it is.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <memory>
#include <string>

#include "agent/testing/agent_fixture.h"
#include "agent/transport/host_exchange.h"
#include "common/resources/memory.h"
#include "common/status/reason.h"

namespace {

// std::thread is given so many more threads.
std::atomic<int> threads_left = INT_MAX;

}  // namespace

// Before the C library's. gRPC keeps its threads: without them its calls would wait for their keepalive.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*work)(void*),
                              void* argument) noexcept {
  using Create = int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto real = reinterpret_cast<Create*>(dlsym(RTLD_NEXT, "pthread_create"));
  Dl_info caller = {};
  const bool ours = dladdr(__builtin_return_address(0), &caller) != 0 && caller.dli_fname != nullptr &&
                    std::string(caller.dli_fname).find("libstdc++") != std::string::npos;
  return !ours || threads_left-- > 0 ? real(thread, attributes, work, argument) : EAGAIN;
}

namespace cairn {
namespace {

using ScarceThreadsTest = AgentFixture;

TEST_F(ScarceThreadsTest, Start_AThreadIsRefused_IsAnErrorAndNoCrash) {
  int refused = 0;
  for (int given = 0;; ++given) {
    threads_left = given;
    const auto agent =
        WithMemory("to start", [&] { return Agent::Start(Options(), std::make_unique<HostExchange>()); });
    const bool enough = threads_left >= 0;
    threads_left = INT_MAX;
    if (enough) break;
    // A queue of several threads does with fewer.
    if (agent.ok()) continue;
    ++refused;
    EXPECT_TRUE(HasReason(agent.status(), Reason::kMemoryLimit)) << given << ": " << agent.status();
  }
  EXPECT_GT(refused, 5);
}

}  // namespace
}  // namespace cairn
