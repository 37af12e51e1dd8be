#include "benchmarks/control_plane/core_adapter.h"

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "coordinator/job/job.h"

namespace cairn {
namespace {

constexpr char kJob[] = "core";
constexpr int kRanksPerNode = 8;
constexpr uint64_t kLayoutBytes = 8192;
constexpr size_t kDigestBytes = 32;

std::string LayoutDigestOf(int rank) {
  std::string digest = absl::StrCat("layout of rank ", rank);
  digest.resize(kDigestBytes, '.');
  return digest;
}

void Demand(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "error: the core refused an event: %s\n", std::string(status.message()).c_str());
  std::exit(1);
}

// Returns the CPU time of this thread, so that what other processes take counts for nothing.
absl::Duration ThreadCpuTime() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return absl::DurationFromTimespec(time);
}

template <typename Function>
absl::Duration TimeOf(Function function) {
  const absl::Duration begun = ThreadCpuTime();
  function();
  return ThreadCpuTime() - begun;
}

}  // namespace

class CoreUnderTest::Core {
 public:
  explicit Core(absl::Time now) : job_(kJob, options_, layouts_, now) {}

  template <typename Function>
  void InCore(absl::Time now, Function function) {
    function(Moment{now, now});
    for (CoreAction& action : job_.TakeEffects().actions) actions_.push_back(std::move(action));
  }

  LayoutTable& layouts() { return layouts_; }
  Job& job() { return job_; }
  std::vector<CoreAction> TakeActions() { return std::exchange(actions_, {}); }

  // Hands back the result of an action that succeeds.
  void Answer(absl::Time now, const CoreAction& action) {
    InCore(now, [&](const Moment& moment) { std::visit([&](const auto& what) { Give(what, moment); }, action); });
  }

 private:
  void Give(const RecoverJob&, const Moment& moment) { job_.OnRecovered(StoredAttempts(), moment); }
  void Give(const ReadStep& read, const Moment& moment) {
    job_.OnStepRead(read.step, read.ticket, StoredAttempts(), moment);
  }
  void Give(const PlanSave& plan, const Moment& moment) {
    PlannedSave planned;
    planned.plan_digest = "the plan";
    planned.plan_digest.resize(kDigestBytes, '.');
    planned.bytes = 1;
    planned.transfer_token = "token";
    job_.OnSavePlanned(plan.key, planned, moment);
  }
  void Give(const ReserveAttempt& reserve, const Moment& moment) {
    job_.OnReserved(reserve.step, reserve.ticket, Reserved{reserve.above + 1, reserve.above + 1}, moment);
  }
  void Give(const MakeManifest& make, const Moment& moment) {
    MadeManifest made;
    made.manifest = std::make_shared<const std::string>("manifest");
    made.bytes = 1;
    made.bins = std::make_shared<const std::vector<BinFile>>();
    job_.OnManifest(make.step, make.ticket, made, moment);
  }
  void Give(const PutOutcome& put, const Moment& moment) {
    StoredAttempt outcome;
    outcome.step = put.step;
    outcome.attempt = put.attempt;
    outcome.committed = put.manifest != nullptr;
    outcome.error = put.error;
    job_.OnOutcome(put.step, put.ticket, PutAnswer{outcome, false}, moment);
  }
  void Give(const RemoveFiles& remove, const Moment& moment) {
    job_.OnRemoved(remove.step, remove.ticket, absl::OkStatus(), moment);
  }
  void Give(const PlanLoad&, const Moment&) {}
  void Give(const VerifyLoad&, const Moment&) {}
  void Give(const ChangeSteps& change, const Moment& moment) {
    job_.OnStepsChanged(change.ticket, ChangedSteps(), moment);
  }

  const DecisionOptions options_;
  LayoutTable layouts_;
  Job job_;
  std::vector<CoreAction> actions_;
};

CoreUnderTest::CoreUnderTest(int ranks)
    : ranks_(ranks),
      sequence_(static_cast<size_t>(ranks)),
      order_(static_cast<size_t>(ranks)),
      action_(static_cast<size_t>(ranks)),
      core_(std::make_unique<Core>(now_)) {}

CoreUnderTest::~CoreUnderTest() = default;

absl::Duration CoreUnderTest::Register(int rank) {
  v1::RegisterAgentRequest request;
  request.mutable_agent()->set_job(kJob);
  request.mutable_agent()->set_rank(static_cast<uint32_t>(rank));
  request.mutable_agent()->set_incarnation(static_cast<uint64_t>(rank) + 1);
  request.set_world_size(static_cast<uint32_t>(ranks_));
  request.set_node(absl::StrCat("node", rank / kRanksPerNode));
  request.set_transfer_address(absl::StrCat("10.0.0.1:", rank));
  absl::Status status;
  const absl::Duration time = TimeOf([&] {
    core_->InCore(now_, [&](const Moment& moment) { status = core_->job().Register(request, moment).status(); });
  });
  Demand(status);
  return time;
}

absl::Duration CoreUnderTest::Report(int rank, v1::Phase::Value phase, int64_t step) {
  v1::SynchronizeAgentRequest request;
  request.mutable_agent()->set_job(kJob);
  request.mutable_agent()->set_rank(static_cast<uint32_t>(rank));
  request.mutable_agent()->set_incarnation(static_cast<uint64_t>(rank) + 1);
  request.mutable_agent()->set_coordinator_epoch(1);
  request.set_sequence(++sequence_[static_cast<size_t>(rank)]);
  v1::TrainerState& trainer = *request.mutable_state()->mutable_trainer();
  trainer.set_attached(true);
  trainer.set_incarnation(static_cast<uint64_t>(rank) + 1);
  trainer.set_layout_digest(LayoutDigestOf(rank));
  if (phase != v1::Phase::PHASE_UNSPECIFIED) {
    const v1::SaveOrder& order = order_[static_cast<size_t>(rank)];
    v1::SaveState& save = *request.mutable_state()->add_saves();
    save.set_step(step);
    save.set_phase(phase);
    save.set_layout_digest(trainer.layout_digest());
    save.set_call(static_cast<uint64_t>(step));
    save.set_trainer_incarnation(trainer.incarnation());
    if (order.step() == step) {
      save.set_attempt(order.attempt());
      save.set_attempt_nonce(order.attempt_nonce());
      save.set_plan_digest(order.plan_digest());
      save.set_bytes_total(1);
    }
    if (phase == v1::Phase::WRITTEN) save.mutable_result()->add_files()->set_file_bytes(1);
  }
  absl::Status status;
  const absl::Duration time = TimeOf(
      [&] { core_->InCore(now_, [&](const Moment& moment) { status = core_->job().Synchronize(request, moment); }); });
  Demand(status);
  return time;
}

absl::Duration CoreUnderTest::TellOrders(int rank) {
  v1::SynchronizeAgentResponse orders;
  const absl::Duration time = TimeOf(
      [&] { core_->InCore(now_, [&](const Moment& moment) { orders = core_->job().OrdersFor(rank, moment); }); });
  for (const std::string& digest : orders.wanted_layouts()) core_->layouts().Add(digest, kLayoutBytes);
  action_[static_cast<size_t>(rank)] = v1::Phase::PHASE_UNSPECIFIED;
  if (orders.saves_size() > 0) {
    order_[static_cast<size_t>(rank)] = orders.saves(0);
    action_[static_cast<size_t>(rank)] = orders.saves(0).phase();
  }
  return time;
}

absl::Duration CoreUnderTest::Tick() {
  return TimeOf(
      [&] { core_->InCore(now_, [&](const Moment& moment) { core_->job().Tick(moment, absl::ZeroDuration()); }); });
}

absl::Duration CoreUnderTest::CarryOut() {
  absl::Duration longest;
  for (;;) {
    const std::vector<CoreAction> actions = core_->TakeActions();
    if (actions.empty()) return longest;
    for (const CoreAction& action : actions) {
      longest = std::max(longest, TimeOf([&] { core_->Answer(now_, action); }));
    }
  }
}

}  // namespace cairn
