// The peer of the control plane's figures: a server of the same gRPC that holds as many calls and decides nothing.
//
//   empty_server --items I --lease-ms MS --listen HOST:PORT
//
// It counts how many ranks have begun and written, because a save ends only if somebody says so: when all have, all
// held calls are answered. It checks nothing, plans nothing, and keeps nothing.
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cairn/v1/agent_coordination_service.grpc.pb.h"
#include "cairn/v1/plan.pb.h"
#include "common/base/digest.h"
#include "common/base/mutex.h"
#include "common/base/time_proto.h"
#include "common/base/version_text.h"
#include "common/process/arguments.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/reactor.h"

namespace cairn {
namespace {

constexpr uint32_t kMaxRanks = 100'000;

struct Flags {
  int items = 0;
  int lease_ms = 10'000;
  std::string listen = "127.0.0.1:0";
};

// All calls answer OK at once, but SynchronizeAgent, which answers when the barrier of the save falls or when its time
// is over.
class EmptyService final : public v1::AgentCoordinationService::CallbackService {
 public:
  explicit EmptyService(const Flags& flags) : flags_(flags), plan_digest_(Digest("empty")) {}

  grpc::ServerUnaryReactor* RegisterAgent(grpc::CallbackServerContext* context, const v1::RegisterAgentRequest* request,
                                          v1::RegisterAgentResponse* response) override {
    if (request->world_size() == 0 || request->world_size() > kMaxRanks) {
      return FinishNow(context, absl::InvalidArgumentError("no such world size"));
    }
    {
      MutexLock lock(mutex_);
      // It never shrinks: held calls stay where they are.
      std::vector<Rank>& ranks = jobs_[request->agent().job()].ranks;
      ranks.resize(std::max<size_t>(ranks.size(), request->world_size()));
    }
    response->set_coordinator_epoch(1);
    response->set_membership_epoch(1);
    SetDuration(absl::Milliseconds(flags_.lease_ms), *response->mutable_lease_ttl());
    // Short reports suffice, because this server reads only what they always have: the step, and a phase that changed.
    response->set_short_reports(true);
    return FinishNow(context, absl::OkStatus());
  }

  grpc::ServerUnaryReactor* SynchronizeAgent(grpc::CallbackServerContext* context,
                                             const v1::SynchronizeAgentRequest* request,
                                             v1::SynchronizeAgentResponse* response) override {
    const uint32_t rank = request->agent().rank();
    std::vector<Answer> answers;
    grpc::ServerUnaryReactor* reactor = nullptr;
    {
      MutexLock lock(mutex_);
      Job& job = jobs_[request->agent().job()];
      if (rank >= job.ranks.size()) return FinishNow(context, absl::InvalidArgumentError("no such rank"));
      Rank& held = job.ranks[rank];
      if (held.call) answers.push_back({std::exchange(held.call, nullptr), held.response, MakeOrders(job, held)});
      if (request->state().saves_size() > 0) {
        Count(job, held, request->state().saves(0), answers);
      } else {
        held.step = 0;
      }
      held.response = response;
      held.knows_plan = request->known_revision() != 0;
      if (request->known_revision() == RevisionFor(job, held)) {
        held.call = HeldCall::Start(DurationOf(request->max_wait()),
                                    [this, &job, rank](HeldCall& call, bool timer) { OnEnd(job, rank, call, timer); });
        reactor = held.call->reactor();
      } else {
        *response = MakeOrders(job, held);
      }
    }
    Release(answers);
    return reactor != nullptr ? reactor : FinishNow(context, absl::OkStatus());
  }

  grpc::ServerUnaryReactor* PutLayout(grpc::CallbackServerContext* context, const v1::PutLayoutRequest* request,
                                      v1::PutLayoutResponse* response) override {
    response->set_received_bytes(request->offset() + request->chunk().size());
    return FinishNow(context, absl::OkStatus());
  }

  // Two files, as a coordinator plans them by default.
  grpc::ServerUnaryReactor* GetPlan(grpc::CallbackServerContext* context, const v1::GetPlanRequest* request,
                                    v1::GetPlanResponse* response) override {
    v1::WritePlan plan;
    plan.set_plan_digest(plan_digest_);
    plan.set_rank(request->agent().rank());
    for (int i = 0; i < 2; ++i) plan.add_files()->set_name(absl::StrCat("rank-bin", i));
    for (int item = 0; item < flags_.items; ++item)
      plan.mutable_files(item % 2)->add_items(static_cast<uint32_t>(item));
    response->set_chunk(plan.SerializeAsString());
    response->set_total_bytes(response->chunk().size());
    return FinishNow(context, absl::OkStatus());
  }

  grpc::ServerUnaryReactor* UnregisterAgent(grpc::CallbackServerContext* context, const v1::UnregisterAgentRequest*,
                                            v1::UnregisterAgentResponse*) override {
    return FinishNow(context, absl::OkStatus());
  }

 private:
  struct Rank {
    std::shared_ptr<HeldCall> call;
    v1::SynchronizeAgentResponse* response = nullptr;
    int64_t step = 0;  // of the save that it reports; 0 for none
    bool begun = false;
    bool written = false;
    bool knows_plan = false;
  };
  struct Job {
    std::vector<Rank> ranks;
    int64_t step = 0;  // of the newest save
    size_t begun = 0;
    size_t written = 0;
  };
  struct Answer {
    std::shared_ptr<HeldCall> call;
    v1::SynchronizeAgentResponse* response;
    v1::SynchronizeAgentResponse orders;
  };

  void Count(Job& job, Rank& rank, const v1::SaveState& save, std::vector<Answer>& answers)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (save.step() > job.step) {
      job.step = save.step();
      job.begun = job.written = 0;
    }
    if (rank.step != save.step()) {
      rank.step = save.step();
      rank.begun = rank.written = false;
    }
    if (save.step() != job.step) return;
    if (!std::exchange(rank.begun, true) && ++job.begun == job.ranks.size()) AnswerAll(job, answers);
    if (save.phase() == v1::Phase::WRITTEN && !std::exchange(rank.written, true) && ++job.written == job.ranks.size()) {
      AnswerAll(job, answers);
    }
  }

  void AnswerAll(Job& job, std::vector<Answer>& answers) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (Rank& rank : job.ranks) {
      if (rank.call) answers.push_back({std::exchange(rank.call, nullptr), rank.response, MakeOrders(job, rank)});
    }
  }

  uint64_t RevisionFor(const Job& job, const Rank& rank) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (rank.step == 0) return 1;
    const bool begun = rank.step < job.step || job.begun == job.ranks.size();
    const bool written = rank.step < job.step || job.written == job.ranks.size();
    return static_cast<uint64_t>(rank.step) * 4 + (written ? 2 : begun ? 1 : 0);
  }

  v1::SynchronizeAgentResponse MakeOrders(const Job& job, const Rank& rank) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    v1::SynchronizeAgentResponse orders;
    orders.set_coordinator_epoch(1);
    orders.set_membership_epoch(1);
    orders.set_revision(RevisionFor(job, rank));
    if (rank.knows_plan) {
      orders.set_same_current_plan(true);
    } else {
      orders.set_current_plan_digest(plan_digest_);
    }
    if (rank.step == 0) return orders;
    const uint64_t stage = RevisionFor(job, rank) % 4;
    v1::SaveOrder& order = *orders.add_saves();
    order.set_step(rank.step);
    order.set_phase(stage == 2 ? v1::Phase::COMMITTED : stage == 1 ? v1::Phase::WRITING : v1::Phase::WAITING);
    order.set_attempt(1);
    order.set_attempt_nonce(1);
    order.set_by_current_plan(true);
    return orders;
  }

  void OnEnd(Job& job, uint32_t rank, HeldCall& call, bool timer) {
    std::vector<Answer> answers;
    {
      MutexLock lock(mutex_);
      Rank& held = job.ranks[rank];
      if (held.call.get() != &call) return;
      auto ended = std::exchange(held.call, nullptr);
      if (timer) answers.push_back({std::move(ended), held.response, MakeOrders(job, held)});
    }
    Release(answers);
  }

  static void Release(std::vector<Answer>& answers) {
    for (Answer& answer : answers) {
      if (!answer.call->Claim()) continue;
      answer.response->Swap(&answer.orders);
      answer.call->AnswerClaimed(absl::OkStatus());
    }
  }

  const Flags flags_;
  const std::string plan_digest_;
  Mutex mutex_;
  std::map<std::string, Job> jobs_ ABSL_GUARDED_BY(mutex_);
};

int Main(int argc, char** argv) {
  Flags flags;
  ArgumentParser app("empty_server", "Holds the calls of agents and decides nothing.", VersionText("empty_server"));
  app.AddOption("--items", flags.items, "Items of each rank's plan").Between(1, 100'000).Required();
  app.AddOption("--lease-ms", flags.lease_ms, "What agents are told").Between(1, 3'600'000).ShowDefault();
  app.AddOption("--listen", flags.listen, "host:port").ShowDefault();
  if (const std::optional<int> exit_status = app.Parse(argc, argv)) return *exit_status;
  EmptyService service(flags);
  grpc::ServerBuilder builder;
  ConfigureServer(builder);
  int port = 0;
  builder.AddListeningPort(flags.listen, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    std::fprintf(stderr, "error: cannot listen on %s\n", flags.listen.c_str());
    return 1;
  }
  std::printf("%s:%d\n", flags.listen.substr(0, flags.listen.rfind(':')).c_str(), port);
  std::fflush(stdout);
  server->Wait();
  return 0;
}

}  // namespace
}  // namespace cairn

int main(int argc, char** argv) { return cairn::Main(argc, argv); }
