// Calls that are answered later, with a real server and a caller that does not wait.
#include "coordinator/server/dispatcher.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cairn/v1/agent_coordination_service.grpc.pb.h"
#include "common/base/clock.h"
#include "common/base/digest.h"
#include "common/base/mutex.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/testing/loopback_server.h"
#include "common/status/reason.h"
#include "common/status/retry_delay.h"
#include "store/posix/posix_storage.h"
#include "store/storage/testing/fake_root_lock.h"

namespace cairn {
namespace {

// Answers PutLayout on a worker that a test holds up, and SynchronizeAgent never by itself.
class Service final : public v1::AgentCoordinationService::CallbackService {
 public:
  explicit Service(Dispatcher& dispatcher) : dispatcher_(dispatcher) {}

  grpc::ServerUnaryReactor* PutLayout(grpc::CallbackServerContext*, const v1::PutLayoutRequest* request,
                                      v1::PutLayoutResponse* response) override {
    return dispatcher_.OnWorker(
        *this, *request, response,
        [](Service& self, const v1::PutLayoutRequest& asked) -> absl::StatusOr<v1::PutLayoutResponse> {
          MutexLock lock(self.mutex_);
          ++self.begun_;
          self.changed_.NotifyAll();
          while (!self.open_) self.changed_.Wait(self.mutex_);
          self.seen_ += asked.chunk();
          ++self.ended_;
          self.changed_.NotifyAll();
          v1::PutLayoutResponse made;
          made.set_received_bytes(asked.chunk().size());
          return made;
        });
  }
  grpc::ServerUnaryReactor* SynchronizeAgent(grpc::CallbackServerContext* context,
                                             const v1::SynchronizeAgentRequest* request,
                                             v1::SynchronizeAgentResponse* response) override {
    return dispatcher_.Hold(
        context, {"demo"}, absl::Minutes(1), response,
        [node = request->agent().job()](Job&, const Moment&,
                                        bool last) -> std::optional<absl::StatusOr<v1::SynchronizeAgentResponse>> {
          if (!last) return std::nullopt;
          v1::SynchronizeAgentResponse made;
          made.set_current_plan_digest(node);
          return made;
        });
  }

  // A held call of an agent, which is never answered before its end.
  grpc::ServerUnaryReactor* GetTransferPeers(grpc::CallbackServerContext* context,
                                             const v1::GetTransferPeersRequest* request,
                                             v1::GetTransferPeersResponse* response) override {
    const v1::AgentIdentity& agent = request->agent();
    return dispatcher_.Hold(
        context, {agent.job(), static_cast<int>(agent.rank())}, absl::Minutes(1), response,
        [this, job = agent.job()](Job&, const Moment& moment,
                                  bool last) -> std::optional<absl::StatusOr<v1::GetTransferPeersResponse>> {
          MutexLock lock(mutex_);
          // Whatever is asked under one lock is asked at the same moment.
          if (holds_.empty() || holds_.back().job != job || holds_.back().at != moment.now) {
            holds_.push_back({job, moment.now});
          }
          ++holds_.back().asked;
          ++asked_;
          if (on_ask_) on_ask_();
          changed_.NotifyAll();
          if (!last) return std::nullopt;
          return v1::GetTransferPeersResponse();
        });
  }

  // Is called for each held call of an agent that is asked.
  void OnAsk(std::function<void()> on_ask) {
    MutexLock lock(mutex_);
    on_ask_ = std::move(on_ask);
  }
  // The calls of one job that were asked without letting go of its lock.
  struct LockHold {
    std::string job;
    absl::Time at;
    size_t asked = 0;
  };
  // Waits until so many calls were asked, and forgets them.
  std::vector<LockHold> AwaitAsked(size_t count) {
    MutexLock lock(mutex_);
    while (asked_ < count) changed_.Wait(mutex_);
    asked_ = 0;
    return std::exchange(holds_, {});
  }

  void AwaitBegun(int count) {
    MutexLock lock(mutex_);
    while (begun_ < count) changed_.Wait(mutex_);
  }
  void Open() {
    MutexLock lock(mutex_);
    open_ = true;
    changed_.NotifyAll();
  }
  std::string AwaitEnded(int count) {
    MutexLock lock(mutex_);
    while (ended_ < count) changed_.Wait(mutex_);
    return seen_;
  }

 private:
  Dispatcher& dispatcher_;
  Mutex mutex_;
  CondVar changed_;
  int begun_ ABSL_GUARDED_BY(mutex_) = 0;
  int ended_ ABSL_GUARDED_BY(mutex_) = 0;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
  std::string seen_ ABSL_GUARDED_BY(mutex_);
  std::vector<LockHold> holds_ ABSL_GUARDED_BY(mutex_);
  size_t asked_ ABSL_GUARDED_BY(mutex_) = 0;
  std::function<void()> on_ask_ ABSL_GUARDED_BY(mutex_);
};

class DispatcherTest : public ::testing::Test {
 protected:
  explicit DispatcherTest(const Clock& clock = Clock::Real()) {
    root_ = ::testing::TempDir() + "/dispatcher-XXXXXX";
    EXPECT_NE(mkdtemp(root_.data()), nullptr);
    storage_ = *PosixStorage::Open(root_, false);
    EXPECT_TRUE(storage_->MakeDirectories(".cairn").ok());
    checkpoints_ = std::make_unique<CheckpointStore>(*storage_);
    attempts_ = std::make_unique<AttemptStore>(*storage_, *checkpoints_, Clock::Real(), lock_);
    plans_ = std::make_unique<PlanStore>(*storage_, layouts_, SaveOptions());
    deletions_ = std::make_unique<DeletionStore>(*storage_, *checkpoints_, Clock::Real(), lock_);
    executor_ = std::make_unique<Executor>(*checkpoints_, *attempts_, *deletions_, *plans_,
                                           *TransferSecret::Load(*storage_), Clock::Real());
    dispatcher_ = std::make_unique<Dispatcher>(DecisionOptions(), *executor_, layouts_, clock, 2);
    service_ = std::make_unique<Service>(*dispatcher_);
    server_ = std::make_unique<testing::LoopbackServer>(*service_);
    stub_ = v1::AgentCoordinationService::NewStub(MakeChannel(server_->address(), 64 << 20));
  }
  ~DispatcherTest() override {
    service_->Open();
    EXPECT_TRUE(dispatcher_->Stop());
    server_->End();
    std::filesystem::remove_all(root_);
  }

  std::string root_;
  std::unique_ptr<PosixStorage> storage_;
  FakeRootLock lock_;
  LayoutStore layouts_{1 << 20};
  std::unique_ptr<CheckpointStore> checkpoints_;
  std::unique_ptr<AttemptStore> attempts_;
  std::unique_ptr<DeletionStore> deletions_;
  std::unique_ptr<PlanStore> plans_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<testing::LoopbackServer> server_;
  std::unique_ptr<v1::AgentCoordinationService::Stub> stub_;
};

TEST_F(DispatcherTest, Call_Cancelled_LeavesItsWorkWhatItNeeds) {
  // Those that have begun, and some that wait for a worker.
  constexpr int kCalls = 6;
  std::vector<std::thread> callers;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::atomic<int> cancelled = 0;
  for (int i = 0; i < kCalls; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    callers.emplace_back([&, context = contexts.back().get()] {
      v1::PutLayoutRequest request;
      request.set_chunk(std::string(1 << 20, 'x'));
      v1::PutLayoutResponse response;
      const grpc::Status status = stub_->PutLayout(context, request, &response);
      if (status.error_code() == grpc::StatusCode::CANCELLED) ++cancelled;
    });
  }
  service_->AwaitBegun(2);
  for (auto& context : contexts) context->TryCancel();
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(cancelled, kCalls);
  // gRPC frees a call when both of its sides are done with it: the next one shows that it has had the time.
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(50));
  v1::SynchronizeAgentResponse orders;
  EXPECT_EQ(stub_->SynchronizeAgent(&context, v1::SynchronizeAgentRequest(), &orders).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  service_->Open();
  const std::string seen = service_->AwaitEnded(2);
  EXPECT_EQ(seen, std::string(seen.size(), 'x'));
  EXPECT_GE(seen.size(), size_t{2} << 20);
}

// Calls of agents that the service holds until they are cancelled.
class HeldCalls {
 public:
  explicit HeldCalls(v1::AgentCoordinationService::Stub& stub) : stub_(stub) {}
  // Cancels them, and waits for their end.
  ~HeldCalls() {
    for (const auto& call : calls_) call->context.TryCancel();
    MutexLock lock(mutex_);
    while (ended_ < calls_.size()) changed_.Wait(mutex_);
  }

  size_t size() const { return calls_.size(); }
  void Add(const std::string& job, size_t rank) {
    Call& call = *calls_.emplace_back(std::make_unique<Call>());
    call.request.mutable_agent()->set_job(job);
    call.request.mutable_agent()->set_rank(static_cast<uint32_t>(rank));
    stub_.async()->GetTransferPeers(&call.context, &call.request, &call.response, [this](const grpc::Status&) {
      MutexLock lock(mutex_);
      ++ended_;
      changed_.NotifyAll();
    });
  }

 private:
  struct Call {
    grpc::ClientContext context;
    v1::GetTransferPeersRequest request;
    v1::GetTransferPeersResponse response;
  };

  v1::AgentCoordinationService::Stub& stub_;
  std::vector<std::unique_ptr<Call>> calls_;
  Mutex mutex_;
  CondVar changed_;
  size_t ended_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Wakes all agents of a job: when storage has said what it knows of it.
void WakeAll(Dispatcher& dispatcher, const std::string& job, size_t ranks) {
  const absl::Status registered = dispatcher.Event(job, [&](Job& made, const Moment& moment) {
    v1::RegisterAgentRequest request;
    request.mutable_agent()->set_job(job);
    request.mutable_agent()->set_incarnation(1);
    request.set_world_size(static_cast<uint32_t>(ranks));
    return made.Register(request, moment).status();
  });
  EXPECT_TRUE(registered.ok()) << registered;
}

// All agents of two jobs wait. Whatever comes to a job, its lock is let go after so many calls, and then the other one
// has its turn.
TEST_F(DispatcherTest, AllAgentsAreWoken_TheLockIsHeldForAFewCallsAtATime) {
  constexpr size_t kRanks = 5 * Dispatcher::kAskedAtOnce + 3;
  HeldCalls calls(*stub_);
  for (const std::string job : {"one", "two"}) {
    for (size_t rank = 0; rank < kRanks; ++rank) calls.Add(job, rank);
  }
  service_->AwaitAsked(calls.size());
  for (const std::string job : {"one", "two"}) WakeAll(*dispatcher_, job, kRanks);
  for (const Service::LockHold& hold : service_->AwaitAsked(calls.size())) {
    EXPECT_LE(hold.asked, Dispatcher::kAskedAtOnce) << hold.job;
  }
}

// Time passes when it is looked at, so that each moment is another one, and as the test says.
class SteppedClock final : public Clock {
 public:
  absl::Time SteadyNow() const override { return absl::UnixEpoch() + absl::Nanoseconds(now_ += step_); }
  absl::Time WallNow() const override { return Clock::Real().WallNow(); }
  void Pass(absl::Duration duration) { now_ += absl::ToInt64Nanoseconds(duration); }
  void PassFaster() { step_ = 1'000'000; }

 private:
  mutable std::atomic<int64_t> now_ = 0;  // nanoseconds
  std::atomic<int64_t> step_ = 1;
};

struct OwnClock {
  SteppedClock clock;
};
class DispatcherPauseTest : protected OwnClock, public DispatcherTest {
 protected:
  DispatcherPauseTest() : DispatcherTest(clock) {}
};

// A turn is followed by a pause as long as the turn. In a pause each call that comes takes one of those that wait
// along, and no more: otherwise all of them would be answered at once, and their agents' next calls would hold up all
// others.
TEST_F(DispatcherPauseTest, CallsComeInAPause_EachTakesOneAlong) {
  constexpr size_t kRanks = 4 * Dispatcher::kAskedAtOnce;
  constexpr size_t kMore = 20;
  HeldCalls calls(*stub_);
  for (size_t rank = 0; rank < kRanks; ++rank) calls.Add("demo", rank);
  service_->AwaitAsked(kRanks);
  service_->OnAsk([this] { clock.Pass(absl::Milliseconds(1)); });
  WakeAll(*dispatcher_, "demo", kRanks + kMore);
  service_->AwaitAsked(2 * Dispatcher::kAskedAtOnce);  // with the event, and in the first turn
  service_->OnAsk(nullptr);
  for (size_t more = 0; more < kMore; ++more) {
    calls.Add("demo", kRanks + more);
    for (const Service::LockHold& hold : service_->AwaitAsked(2)) EXPECT_EQ(hold.asked, 1u);
  }
  clock.PassFaster();
  service_->AwaitAsked(kRanks - 2 * Dispatcher::kAskedAtOnce - kMore);
}

// The store has room for three of these layouts, and nobody holds any of them.
TEST_F(DispatcherTest, MakeRoom_LayoutsThatNothingRunsBy_GiveWay) {
  layouts_.OnFull([this](const std::string& job, bool all_jobs) { return dispatcher_->MakeRoom(job, all_jobs); });
  for (char c = 'a'; c < 'k'; ++c) {
    const std::string bytes(300'000, c);
    const absl::Status put = layouts_.Put(Digest(bytes), bytes, "demo");
    ASSERT_TRUE(put.ok()) << c << ": " << put;
    dispatcher_->OnLayout(Digest(bytes));
  }
  EXPECT_LE(layouts_.size(), 3u);
  EXPECT_EQ(layouts_.refused(), 0u);
}

// People may wait for news of a job, but not in any number: each call takes memory.
TEST_F(DispatcherTest, CallsOfPeople_TooManyWait_TheNextOneIsSentAway) {
  struct Call {
    grpc::ClientContext context;
    v1::SynchronizeAgentRequest request;
    v1::SynchronizeAgentResponse response;
  };
  std::vector<std::unique_ptr<Call>> calls;
  Mutex mutex;
  CondVar changed;
  size_t ended = 0;
  for (size_t i = 0; i < Dispatcher::kMostPeople; ++i) {
    Call& call = *calls.emplace_back(std::make_unique<Call>());
    stub_->async()->SynchronizeAgent(&call.context, &call.request, &call.response, [&](const grpc::Status&) {
      MutexLock lock(mutex);
      ++ended;
      changed.NotifyAll();
    });
  }
  grpc::Status refused;
  // Those before it may be on their way yet.
  for (int i = 0; i < 100 && refused.error_code() != grpc::StatusCode::RESOURCE_EXHAUSTED; ++i) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
    v1::SynchronizeAgentResponse response;
    refused = stub_->SynchronizeAgent(&context, v1::SynchronizeAgentRequest(), &response);
    ASSERT_FALSE(refused.ok());
  }
  const absl::Status error = CallError(refused, ServerRole::kCoordinator, "here");
  EXPECT_TRUE(HasReason(error, Reason::kOverloaded)) << error;
  EXPECT_TRUE(RetryDelayOf(error).has_value()) << "it says when to come again";
  EXPECT_GE(dispatcher_->strain().waits_refused, 1u) << "one of those before it may have come after it";
  for (const auto& call : calls) call->context.TryCancel();
  MutexLock lock(mutex);
  while (ended < calls.size()) changed.Wait(mutex);
}

TEST_F(DispatcherTest, HeldCall_Drain_IsAnsweredWithWhatItsPollMade) {
  std::thread caller([&] {
    grpc::ClientContext context;
    v1::SynchronizeAgentRequest request;
    request.mutable_agent()->set_job("demo");
    v1::SynchronizeAgentResponse orders;
    EXPECT_TRUE(stub_->SynchronizeAgent(&context, request, &orders).ok());
    EXPECT_EQ(orders.current_plan_digest(), "demo");
  });
  // Whether the call has come yet or not, it is answered.
  EXPECT_TRUE(dispatcher_->Stop());
  caller.join();
}

}  // namespace
}  // namespace cairn
