#include "tests/testing/fake_agent.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/random_id.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/testing/proven_peer.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/status/status_proto.h"
#include "store/posix/posix_storage.h"
#include "store/root/root_proof.h"
#include "tests/testing/process.h"

namespace cairn::testing {
namespace {

constexpr absl::Duration kCallTimeout = absl::Seconds(10);

}  // namespace

FakeAgent::FakeAgent(FakeAgentOptions options)
    : options_(std::move(options)), incarnation_(RandomId()), held_(options_), trainer_(RandomId()) {
  if (options_.token.empty()) options_.token = ReadWhole(options_.root + "/.cairn/token");
  peer_ = CoordinatorAt(options_.coordinator, options_.token);
  thread_ = std::thread([this] { Run(); });
}

FakeAgent::~FakeAgent() { Kill(); }

void FakeAgent::Kill() {
  {
    std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

template <typename Predicate>
bool FakeAgent::WaitFor(absl::Duration timeout, Predicate predicate) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, absl::ToChronoMilliseconds(timeout), predicate);
}

void FakeAgent::ReportStep(int64_t step) {
  std::unique_lock lock(mutex_);
  step_ = step;
  if (arm_.step() != step || (arm_.status() != v1::ArmState::ARMED && arm_.status() != v1::ArmState::AGREED)) return;
  changed_.wait_for(lock, std::chrono::seconds(20), [&] { return arm_.status() != v1::ArmState::ARMED; });
  const bool agreed = arm_.status() == v1::ArmState::AGREED;
  lock.unlock();
  if (agreed) Save(step);
}

void FakeAgent::Save(int64_t step, bool allow_dropped_names) {
  std::lock_guard lock(mutex_);
  v1::SaveState& save = saves_[step];
  save.Clear();
  save.set_step(step);
  save.set_phase(v1::Phase::PLANNING);
  save.set_layout_digest(held_.layout_digest());
  save.set_allow_dropped_names(allow_dropped_names);
  save.set_call(++calls_[step]);
  save.set_trainer_incarnation(trainer_);
  outcomes_.erase(step);
  told_.erase(step);
  changed_.notify_all();
}

void FakeAgent::LoseTrainer() {
  std::lock_guard lock(mutex_);
  trainer_attached_ = false;
}

void FakeAgent::HoldAt(v1::Phase::Value phase) {
  std::lock_guard lock(mutex_);
  hold_ = phase;
}

void FakeAgent::Release() { HoldAt(v1::Phase::PHASE_UNSPECIFIED); }

void FakeAgent::FailWith(absl::Status error) {
  std::lock_guard lock(mutex_);
  failure_ = std::move(error);
}

absl::Status FakeAgent::WaitOutcome(int64_t step, absl::Duration timeout) {
  if (!WaitFor(timeout, [&] { return outcomes_.contains(step); })) {
    return absl::DeadlineExceededError(absl::StrCat("rank ", options_.rank, " has no outcome of step ", step));
  }
  std::lock_guard lock(mutex_);
  return outcomes_[step];
}

bool FakeAgent::WaitPhase(int64_t step, v1::Phase::Value phase, absl::Duration timeout) {
  return WaitFor(timeout, [&] { return told_.contains(step) && told_[step] == phase; });
}

bool FakeAgent::WaitRegistered(absl::Duration timeout) {
  return WaitFor(timeout, [&] { return registered_ && revision_ > 0; });
}

void FakeAgent::Load(uint64_t number, std::optional<int64_t> step) {
  std::lock_guard lock(mutex_);
  v1::LoadState& load = loads_[number];
  load.set_number(number);
  load.set_phase(v1::Phase::PLANNING);
  load.set_layout_digest(held_.layout_digest());
  load.set_strict(true);
  load.set_trainer_incarnation(trainer_);
  if (step.has_value()) load.set_step(*step);
}

absl::StatusOr<v1::LoadOrder> FakeAgent::WaitLoad(uint64_t number, absl::Duration timeout) {
  if (!WaitFor(timeout, [&] { return load_results_.contains(number); })) {
    return absl::DeadlineExceededError(absl::StrCat("rank ", options_.rank, " has no end of load ", number));
  }
  std::lock_guard lock(mutex_);
  return load_results_[number];
}

v1::ReadPlan FakeAgent::read_plan() {
  std::lock_guard lock(mutex_);
  return read_plan_;
}

std::vector<absl::Status> FakeAgent::registration_errors() {
  std::lock_guard lock(mutex_);
  return registration_errors_;
}

bool FakeAgent::asked_to_check() {
  std::lock_guard lock(mutex_);
  return asked_to_check_;
}

uint64_t FakeAgent::epoch() {
  std::lock_guard lock(mutex_);
  return epoch_;
}

v1::AgentIdentity FakeAgent::Identity() const {
  v1::AgentIdentity identity;
  identity.set_job(options_.job);
  identity.set_rank(static_cast<uint32_t>(options_.rank));
  identity.set_incarnation(incarnation_);
  identity.set_coordinator_epoch(epoch_);
  return identity;
}

template <typename Request, typename Response>
absl::Status FakeAgent::Call(grpc::Status (v1::AgentCoordinationService::Stub::*method)(grpc::ClientContext*,
                                                                                        const Request&, Response*),
                             const Request& request, Response& response) {
  CAIRN_ASSIGN_OR_RETURN(const PeerChannel::Channel channel, peer_->Await());
  const auto stub = v1::AgentCoordinationService::NewStub(channel);
  grpc::ClientContext context;
  PrepareCall(context, kCallTimeout);
  return CallError((stub.get()->*method)(&context, request, &response), ServerRole::kCoordinator, options_.coordinator);
}

bool FakeAgent::Register() {
  v1::RegisterAgentRequest request;
  {
    std::lock_guard lock(mutex_);
    *request.mutable_agent() = Identity();
  }
  request.set_world_size(static_cast<uint32_t>(options_.world_size));
  request.set_node("node");
  request.set_transfer_address(absl::StrCat("127.0.0.1:", 40000 + options_.rank));
  request.set_protocol(kProtocolVersion);
  if (const auto storage = PosixStorage::Open(options_.root, false); storage.ok()) {
    request.set_root_proof(ReadRootProof(**storage).value_or(""));
  }
  v1::RegisterAgentResponse response;
  const absl::Status status = Call(&v1::AgentCoordinationService::Stub::RegisterAgent, request, response);
  std::lock_guard lock(mutex_);
  if (!status.ok()) {
    registration_errors_.push_back(status);
    return false;
  }
  epoch_ = response.coordinator_epoch();
  registered_ = true;
  revision_ = 0;
  return true;
}

void FakeAgent::Run() {
  uint64_t sequence = 0;
  for (;;) {
    v1::SynchronizeAgentRequest request;
    bool registered;
    {
      std::unique_lock lock(mutex_);
      if (ended_) return;
      registered = registered_;
      *request.mutable_agent() = Identity();
      request.set_known_revision(revision_);
      v1::AgentState& state = *request.mutable_state();
      state.mutable_trainer()->set_attached(trainer_attached_);
      state.mutable_trainer()->set_incarnation(trainer_);
      state.mutable_trainer()->set_layout_digest(held_.layout_digest());
      if (step_.has_value()) state.mutable_trainer()->set_current_step(*step_);
      *state.mutable_arm() = arm_;
      for (const auto& [step, save] : saves_) *state.add_saves() = save;
      for (const auto& [number, load] : loads_) *state.add_loads() = load;
    }
    if (!registered) {
      if (!Register()) {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, std::chrono::milliseconds(50), [&] { return ended_; });
      }
      continue;
    }
    request.set_sequence(++sequence);
    request.mutable_max_wait()->set_nanos(30'000'000);
    v1::SynchronizeAgentResponse response;
    const absl::Status status = Call(&v1::AgentCoordinationService::Stub::SynchronizeAgent, request, response);
    if (status.ok()) {
      {
        std::lock_guard lock(mutex_);
        for (const v1::SaveState& save : request.state().saves()) told_[save.step()] = save.phase();
        changed_.notify_all();
      }
      Obey(response);
      continue;
    }
    std::unique_lock lock(mutex_);
    if (HasReason(status, Reason::kNotRegistered) || HasReason(status, Reason::kStaleEpoch)) registered_ = false;
    changed_.wait_for(lock, std::chrono::milliseconds(20), [&] { return ended_; });
  }
}

void FakeAgent::Obey(const v1::SynchronizeAgentResponse& response) {
  for (const std::string& digest : response.wanted_layouts()) {
    if (digest == held_.layout_digest()) PutLayout();
  }
  {
    std::lock_guard lock(mutex_);
    revision_ = response.revision();
    changed_.notify_all();
    if (response.has_arm()) {
      const v1::ArmOrder& order = response.arm();
      if (order.action() == v1::ArmOrder::ARM && order.number() != arm_.number()) {
        arm_.set_status(step_.value_or(-1) >= order.step() ? v1::ArmState::REFUSED : v1::ArmState::ARMED);
      } else if (order.action() == v1::ArmOrder::AGREE && arm_.status() == v1::ArmState::ARMED) {
        arm_.set_status(v1::ArmState::AGREED);
      } else if (order.action() == v1::ArmOrder::DISARM) {
        arm_.set_status(v1::ArmState::DISARMED);
      }
      arm_.set_number(order.number());
      arm_.set_step(order.step());
      changed_.notify_all();
    }
  }
  for (const v1::SaveOrder& order : response.saves()) ObeySave(order);
  for (const v1::LoadOrder& order : response.loads()) {
    bool fetch;
    {
      std::lock_guard lock(mutex_);
      if (!loads_.contains(order.number())) continue;
      fetch = order.phase() == v1::Phase::READING && loads_[order.number()].phase() == v1::Phase::PLANNING;
      if (order.phase() == v1::Phase::DONE || order.phase() == v1::Phase::FAILED) {
        load_results_[order.number()] = order;
        loads_.erase(order.number());
        changed_.notify_all();
        continue;
      }
    }
    if (!fetch) continue;
    const auto bytes = GetPlan(order.plan_digest());
    if (!bytes.ok()) continue;  // the next orders say what to fetch
    std::lock_guard lock(mutex_);
    v1::LoadState& load = loads_[order.number()];
    if (read_plan_.ParseFromString(*bytes)) {
      load.set_phase(v1::Phase::DONE);
      load.set_plan_digest(order.plan_digest());
      load.set_storage_bytes(read_plan_.read_bytes());
      load.set_io_path(v1::IO_PATH_DIRECT);
    } else {
      load.set_phase(v1::Phase::FAILED);
      *load.mutable_error() = StatusToProto(MakeError(Reason::kInternal, "the plan cannot be parsed"));
    }
  }
}

void FakeAgent::ObeySave(const v1::SaveOrder& order) {
  std::unique_lock lock(mutex_);
  const auto found = saves_.find(order.step());
  if (found == saves_.end()) return;
  v1::SaveState& save = found->second;
  if (order.call() != 0 && order.call() < save.call()) return;
  const auto set = [&](v1::Phase::Value phase) {
    save.set_phase(phase);
    changed_.notify_all();
  };
  switch (order.phase()) {
    case v1::Phase::STAGING:
    case v1::Phase::WRITING: {
      save.set_plan_digest(order.plan_digest());
      save.set_attempt(order.attempt());
      save.set_attempt_nonce(order.attempt_nonce());
      save.set_request_id(order.request_id());
      save.set_bytes_total(100);
      if (save.phase() == hold_) return;
      if (save.phase() == v1::Phase::PLANNING) {
        set(v1::Phase::STAGING);
      } else if (save.phase() == v1::Phase::STAGING) {
        set(v1::Phase::STAGED);
      } else if (save.phase() == v1::Phase::STAGED && order.phase() == v1::Phase::WRITING) {
        set(v1::Phase::WRITING);
      } else if (save.phase() == v1::Phase::WRITING && failure_.ok()) {
        v1::SaveState written = save;
        lock.unlock();
        const auto plan = GetPlan(order.plan_digest());
        if (!plan.ok()) return;  // the next orders say what to fetch
        const absl::Status status = held_.Write(written, order, *plan);
        lock.lock();
        asked_to_check_ = order.check_replicas();
        if (!saves_.contains(order.step())) return;
        saves_[order.step()] = written;
        saves_[order.step()].set_phase(status.ok() ? v1::Phase::WRITTEN : v1::Phase::FAILED);
        if (!status.ok()) *saves_[order.step()].mutable_error() = StatusToProto(status);
        changed_.notify_all();
      } else if (save.phase() == v1::Phase::WRITING) {
        *save.mutable_error() = StatusToProto(failure_);
        set(v1::Phase::FAILED);
      }
      break;
    }
    case v1::Phase::ABORTING:
      set(v1::Phase::STOPPED);
      break;
    case v1::Phase::COMMITTED:
      outcomes_[order.step()] = absl::OkStatus();
      saves_.erase(found);
      changed_.notify_all();
      break;
    case v1::Phase::ABORTED:
      outcomes_[order.step()] = StatusFromProto(order.error());
      saves_.erase(found);
      changed_.notify_all();
      break;
    default:
      break;
  }
}

void FakeAgent::PutLayout() {
  v1::PutLayoutRequest request;
  {
    std::lock_guard lock(mutex_);
    *request.mutable_agent() = Identity();
  }
  request.set_digest(held_.layout_digest());
  request.set_total_bytes(held_.layout().size());
  // The layout is sent in two chunks, as a large one would be.
  const size_t half = held_.layout().size() / 2;
  for (const auto& [offset, size] : {std::pair<size_t, size_t>{0, half}, {half, held_.layout().size() - half}}) {
    request.set_offset(offset);
    request.set_chunk(held_.layout().substr(offset, size));
    v1::PutLayoutResponse response;
    if (!Call(&v1::AgentCoordinationService::Stub::PutLayout, request, response).ok()) return;
  }
}

absl::StatusOr<std::string> FakeAgent::GetPlan(const std::string& digest) {
  v1::GetPlanRequest request;
  {
    std::lock_guard lock(mutex_);
    *request.mutable_agent() = Identity();
  }
  request.set_plan_digest(digest);
  std::string bytes;
  for (;;) {
    request.set_offset(bytes.size());
    v1::GetPlanResponse response;
    CAIRN_RETURN_IF_ERROR(Call(&v1::AgentCoordinationService::Stub::GetPlan, request, response));
    bytes += response.chunk();
    if (bytes.size() >= response.total_bytes()) return bytes;
  }
}

}  // namespace cairn::testing
