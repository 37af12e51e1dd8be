#include "benchmarks/control_plane/thin_agent.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cairn/v1/layout.pb.h"
#include "common/base/digest.h"
#include "common/base/random_id.h"
#include "common/base/time_proto.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/plan_part.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/status/status_proto.h"
#include "common/storage/attempt_owner.h"
#include "common/storage/root_proof.h"

namespace cairn {
namespace {

// Those of coordinator_link.cc.
constexpr absl::Duration kCallTimeout = absl::Seconds(5);
constexpr absl::Duration kChunkTimeout = absl::Seconds(15);
constexpr absl::Duration kFirstPause = absl::Milliseconds(50);
constexpr absl::Duration kLongestPause = absl::Seconds(1);
constexpr absl::Duration kProgressInterval = absl::Milliseconds(500);
constexpr uint64_t kChunkBytes = uint64_t{2} << 20;

constexpr uint64_t kFrameBytes = 5;
constexpr uint64_t kMemoryBudget = uint64_t{64} << 30;
constexpr uint64_t kRoundBytes = uint64_t{256} << 20;
constexpr int kRanksPerNode = 8;
constexpr uint64_t kObjectBytes = 64;
constexpr size_t kTokenBytes = 4096;
// Of every shared object, on all ranks: nobody looks into the sparse files, but the holders' checksums are compared.
constexpr uint32_t kObjectChecksum = 0x0b1ec7;

bool Staged(v1::SaveState::Phase phase) {
  return phase == v1::SaveState::STAGED || phase == v1::SaveState::WRITING || phase == v1::SaveState::WRITTEN;
}

std::string TokenOf(PosixStorage* storage) {
  if (storage == nullptr) return "";
  std::string token = storage->ReadFile(".cairn/token", kTokenBytes).value_or("");
  return token.substr(0, token.find('\n'));
}

}  // namespace

template <typename Request, typename Response>
struct ThinAgent::Call {
  grpc::ClientContext context;
  Request request;
  Response response;
  absl::Time begun;
};

ThinAgent::ThinAgent(AgentSurroundings& surroundings, std::shared_ptr<grpc::Channel> channel, ThinAgentOptions options)
    : around_(surroundings),
      options_(std::move(options)),
      layout_digest_(Digest(options_.layout)),
      incarnation_(RandomId()),
      trainer_(RandomId()),
      stub_(v1::AgentCoordinationService::NewStub(std::move(channel))),
      random_(static_cast<uint32_t>(incarnation_)),
      pause_(kFirstPause) {
  v1::Layout layout;
  if (layout.ParseFromString(options_.layout)) shards_ = static_cast<uint32_t>(layout.shard_tensors_size());
}

template <typename Method, typename CallType>
void ThinAgent::Launch(Method method, const std::shared_ptr<CallType>& call, absl::Duration timeout, Traffic& traffic,
                       void (ThinAgent::*done)(CallType&, const absl::Status&)) {
  PrepareCall(call->context, timeout, token_);
  call->begun = SteadyNow();
  ++around_.calls;
  ++traffic.calls;
  traffic.up_bytes += call->request.ByteSizeLong() + kFrameBytes;
  auto on_answer = [this, call, &traffic, done](const grpc::Status& answer) {
    if (answer.ok() && options_.answered) options_.answered(SteadyNow() - call->begun);
    around_.loop.Post([this, call, &traffic, done, answer] {
      --around_.calls;
      if (waiting_ == &call->context) waiting_ = nullptr;
      if (stopped_) return;
      if (answer.ok()) traffic.down_bytes += call->response.ByteSizeLong() + kFrameBytes;
      const absl::Status status = answer.error_code() == grpc::StatusCode::CANCELLED
                                      ? absl::CancelledError()
                                      : CallError(answer, PeerKind::kCoordinator, around_.address);
      if (status.ok()) {
        const absl::Time now = SteadyNow();
        around_.counters.longest_silence = std::max(around_.counters.longest_silence, now - heard_);
        heard_ = now;
      }
      (this->*done)(*call, status);
    });
  };
  method(*stub_->async(), *call, std::move(on_answer));
}

void ThinAgent::Start() {
  heard_ = SteadyNow();
  Next();
}

void ThinAgent::Stop() {
  stopped_ = true;
  if (waiting_ != nullptr) waiting_->TryCancel();
}

void ThinAgent::Leave() {
  if (std::exchange(stopped_, true)) return;
  if (waiting_ != nullptr) waiting_->TryCancel();
  auto call = std::make_shared<Call<v1::UnregisterAgentRequest, v1::UnregisterAgentResponse>>();
  *call->request.mutable_agent() = Identity();
  PrepareCall(call->context, kChunkTimeout, token_);
  ++around_.calls;
  stub_->async()->UnregisterAgent(&call->context, &call->request, &call->response, [this, call](const grpc::Status&) {
    around_.loop.Post([this] { --around_.calls; });
  });
}

v1::AgentIdentity ThinAgent::Identity() const {
  v1::AgentIdentity identity;
  identity.set_job(options_.job);
  identity.set_rank(static_cast<uint32_t>(options_.rank));
  identity.set_incarnation(incarnation_);
  identity.set_coordinator_epoch(epoch_);
  return identity;
}

void ThinAgent::Next() {
  if (stopped_) return;
  if (registered_) {
    Synchronize();
  } else {
    Register();
  }
}

void ThinAgent::Register() {
  token_ = TokenOf(around_.storage);
  auto call = std::make_shared<Call<v1::RegisterAgentRequest, v1::RegisterAgentResponse>>();
  v1::RegisterAgentRequest& request = call->request;
  *request.mutable_agent() = Identity();
  request.set_world_size(static_cast<uint32_t>(options_.world_size));
  const int node = options_.rank / kRanksPerNode;
  request.set_node(absl::StrCat("node", node));
  request.set_transfer_address(absl::StrCat("10.", node >> 16, ".", (node >> 8) & 255, ".", node & 255, ":",
                                            20000 + options_.rank % kRanksPerNode));
  request.set_descriptor_socket(absl::StrCat("/run/cairn/", options_.job, "/rank", options_.rank, "/descriptors"));
  request.set_boot_id(absl::StrCat("4f6a0c1e-0000-4000-8000-", absl::Dec(node, absl::kZeroPad12)));
  request.set_protocol(kProtocolVersion);
  request.set_version("thin");
  if (around_.storage != nullptr) request.set_root_proof(ReadRootProof(*around_.storage).value_or(""));
  Launch([](auto& stub, auto& made,
            auto answer) { stub.RegisterAgent(&made.context, &made.request, &made.response, std::move(answer)); },
         call, kCallTimeout, around_.counters.registrations, &ThinAgent::OnRegister);
}

void ThinAgent::OnRegister(Call<v1::RegisterAgentRequest, v1::RegisterAgentResponse>& call,
                           const absl::Status& status) {
  if (!status.ok()) return OnFailed(status);
  if (call.response.coordinator_epoch() < epoch_) {
    return OnFailed(MakeError(Reason::kStaleEpoch, "the answer of an earlier coordinator"));
  }
  epoch_ = call.response.coordinator_epoch();
  revision_ = 0;
  if (call.response.has_lease_ttl()) lease_ = DurationOf(call.response.lease_ttl());
  registered_ = true;
  pause_ = kFirstPause;
  if (std::exchange(was_registered_, true)) ++around_.counters.second_registrations;
  around_.reached(Milestone::kRegistered, options_.rank);
  Next();
}

void ThinAgent::Synchronize() {
  auto call = std::make_shared<Call<v1::SynchronizeAgentRequest, v1::SynchronizeAgentResponse>>();
  v1::SynchronizeAgentRequest& request = call->request;
  *request.mutable_agent() = Identity();
  request.set_known_revision(options_.answered ? 0 : revision_);
  request.set_sequence(++sequence_);
  v1::AgentState& state = *request.mutable_state();
  state.mutable_trainer()->set_attached(true);
  state.mutable_trainer()->set_incarnation(trainer_);
  if (current_step_) state.mutable_trainer()->set_current_step(*current_step_);
  state.mutable_trainer()->set_layout_digest(layout_digest_);
  *state.mutable_arm() = arm_;
  told_call_ = save_ ? save_->state.call() : 0;
  if (save_) *state.add_saves() = save_->state;
  told_load_ = load_ ? load_->state.number() : 0;
  if (load_) *state.add_loads() = load_->state;
  state.set_memory_budget(kMemoryBudget);
  state.set_round_bytes(kRoundBytes);
  absl::Duration max_wait = lease_ / 3;
  if (active()) max_wait = std::min(max_wait, kProgressInterval);
  SetDuration(max_wait, *request.mutable_max_wait());
  sent_version_ = version_;
  waiting_ = &call->context;
  Launch([](auto& stub, auto& made,
            auto answer) { stub.SynchronizeAgent(&made.context, &made.request, &made.response, std::move(answer)); },
         call, max_wait + kCallTimeout, around_.counters.synchronizations, &ThinAgent::OnSynchronize);
}

void ThinAgent::OnSynchronize(Call<v1::SynchronizeAgentRequest, v1::SynchronizeAgentResponse>& call,
                              const absl::Status& status) {
  if (absl::IsCancelled(status)) {
    ++around_.counters.interrupted;
    return Next();  // a change of the state ended the wait: the next call carries it
  }
  if (!status.ok()) return OnFailed(status);
  if (call.response.coordinator_epoch() < epoch_) {
    return OnFailed(MakeError(Reason::kStaleEpoch, "the answer of an earlier coordinator"));
  }
  pause_ = kFirstPause;
  Obey(call.response);
  if (stopped_) return;
  absl::Duration delay = std::min(DurationOf(call.response.next_delay()), lease_ / 3);
  if (active()) delay = std::min(delay, kProgressInterval);
  if (options_.answered) delay = options_.ask_every;
  if (sent_version_ == version_ && delay > absl::ZeroDuration()) return Pause(delay);
  Next();
}

void ThinAgent::OnFailed(const absl::Status& status) {
  const auto reason = ReasonOf(status);
  ++around_.counters.errors[reason ? std::string(InfoOf(*reason).name) : std::string(status.message())];
  if (reason == Reason::kNotRegistered || reason == Reason::kStaleEpoch) {
    const bool was = std::exchange(registered_, false);
    revision_ = 0;
    current_plan_.clear();
    if (was) return Next();  // at once; a second refusal pauses
  } else if (reason == Reason::kStaleIncarnation || reason == Reason::kBadJobName ||
             reason == Reason::kRankOutOfRange) {
    stopped_ = true;
    error_ = status;
    around_.reached(Milestone::kRefused, options_.rank);
    return;
  }
  // Half to all of the pause, so that a thousand agents do not come back together.
  const double part = std::uniform_real_distribution<double>(0.5, 1.0)(random_);
  const absl::Duration pause = pause_ * part;
  pause_ = std::min(pause_ * 2, kLongestPause);
  Pause(pause);
}

void ThinAgent::Pause(absl::Duration delay) {
  pausing_ = true;
  around_.loop.After(delay, [this, pause = ++pauses_] {
    if (!pausing_ || pause != pauses_) return;
    pausing_ = false;
    Next();
  });
}

void ThinAgent::Changed() {
  ++version_;
  if (waiting_ != nullptr) {
    waiting_->TryCancel();
  } else if (pausing_) {
    pausing_ = false;
    around_.loop.Post([this] { Next(); });
  }
}

void ThinAgent::PutLayout() {
  auto call = std::make_shared<Call<v1::PutLayoutRequest, v1::PutLayoutResponse>>();
  *call->request.mutable_agent() = Identity();
  call->request.set_digest(layout_digest_);
  call->request.set_total_bytes(options_.layout.size());
  call->request.set_offset(uploaded_bytes_);
  call->request.set_chunk(options_.layout.substr(uploaded_bytes_, kChunkBytes));
  Launch([](auto& stub, auto& made,
            auto answer) { stub.PutLayout(&made.context, &made.request, &made.response, std::move(answer)); },
         call, kChunkTimeout, around_.counters.uploads, &ThinAgent::OnPutLayout);
}

void ThinAgent::OnPutLayout(Call<v1::PutLayoutRequest, v1::PutLayoutResponse>& call, const absl::Status& status) {
  const uint64_t received = status.ok() ? call.response.received_bytes() : 0;
  if (!status.ok()) {
    const auto reason = ReasonOf(status);
    ++around_.counters.errors[absl::StrCat("upload: ", reason ? std::string(InfoOf(*reason).name) : "?")];
  }
  if (received > uploaded_bytes_ && received < options_.layout.size()) {
    uploaded_bytes_ = received;
    return PutLayout();
  }
  // If it failed, the coordinator asks again.
  uploading_ = false;
  if (received != options_.layout.size()) return;
  ++around_.counters.layouts_uploaded;
  around_.reached(Milestone::kUploaded, options_.rank);
}

void ThinAgent::WantPart(const std::string& plan_digest) {
  if (!wanted_plan_.empty() || plan_digest.empty()) return;
  wanted_plan_ = plan_digest;
  incoming_.clear();
  GetPlan();
}

void ThinAgent::GetPlan() {
  auto call = std::make_shared<Call<v1::GetPlanRequest, v1::GetPlanResponse>>();
  *call->request.mutable_agent() = Identity();
  call->request.set_plan_digest(wanted_plan_);
  call->request.set_offset(incoming_.size());
  if (incoming_.empty()) call->request.set_known_part_digest(BodyDigestOf(part_bytes_));
  Launch([](auto& stub, auto& made,
            auto answer) { stub.GetPlan(&made.context, &made.request, &made.response, std::move(answer)); },
         call, kChunkTimeout, around_.counters.parts, &ThinAgent::OnGetPlan);
}

void ThinAgent::OnGetPlan(Call<v1::GetPlanRequest, v1::GetPlanResponse>& call, const absl::Status& status) {
  if (!status.ok()) {
    const auto reason = ReasonOf(status);
    ++around_.counters.errors[absl::StrCat("plan: ", reason ? std::string(InfoOf(*reason).name) : "?")];
    wanted_plan_.clear();  // the next orders say what to fetch
    return;
  }
  if (call.response.same_part()) {
    incoming_ = PartOfPlan(wanted_plan_, part_bytes_);
  } else {
    incoming_ += call.response.chunk();
    if (incoming_.size() < call.response.total_bytes() && !call.response.chunk().empty()) return GetPlan();
  }
  OnPart(std::exchange(incoming_, {}));
}

void ThinAgent::OnPart(const std::string& bytes) {
  const std::string digest = std::exchange(wanted_plan_, {});
  if (load_ && load_->order.plan_digest() == digest) {
    v1::ReadPlan plan;
    if (!plan.ParseFromString(bytes) || plan.plan_digest() != digest) {
      load_->state.set_phase(v1::LoadState::FAILED);
      *load_->state.mutable_error() = StatusToProto(MakeError(Reason::kInternal, "the read plan is another one"));
      return Changed();
    }
    around_.reached(Milestone::kReadPart, options_.rank);
    load_->state.set_plan_digest(digest);
    load_->state.set_bytes_total(plan.read_bytes());
    load_->state.set_phase(v1::LoadState::READING);
    around_.loop.After(options_.read_time, [this, number = load_->state.number(), read = plan.read_bytes()] {
      if (stopped_ || !load_ || load_->state.number() != number || load_->state.phase() != v1::LoadState::READING) {
        return;
      }
      load_->state.set_phase(v1::LoadState::DONE);
      load_->state.set_bytes_done(read);
      load_->state.set_storage_bytes(read);
      load_->state.set_io_path(v1::IO_PATH_DIRECT);
      Changed();
    });
    return Changed();
  }
  v1::WritePlan plan;
  if (!plan.ParseFromString(bytes) || plan.plan_digest() != digest) {
    FailSave(MakeError(Reason::kInternal, "the write plan is another one"));
    return;
  }
  part_ = std::move(plan);
  part_bytes_ = bytes;
  plan_digest_ = digest;
  around_.reached(Milestone::kPart, options_.rank);
  AdvanceSave();
}

void ThinAgent::Obey(const v1::SynchronizeAgentResponse& response) {
  epoch_ = response.coordinator_epoch();
  revision_ = response.revision();
  if (response.has_lease_ttl()) lease_ = std::max(DurationOf(response.lease_ttl()), absl::Milliseconds(100));
  current_plan_ = response.current_plan_digest();
  current_plan_checks_ = response.check_replicas();
  for (const std::string& digest : response.wanted_layouts()) {
    if (digest != layout_digest_ || std::exchange(uploading_, true)) continue;
    uploaded_bytes_ = 0;
    PutLayout();
  }
  if (response.has_arm()) ApplyArm(response.arm());
  for (const v1::SaveOrder& order : response.saves()) ApplySave(order);
  for (const v1::LoadOrder& order : response.loads()) ApplyLoad(order);
  // As a trainer's prepare does: it waits for the part of the newest plan.
  if (!load_ && current_plan_ != plan_digest_) WantPart(current_plan_);
  AdvanceSave();
  AdvanceLoad();
}

void ThinAgent::ApplyArm(const v1::ArmOrder& order) {
  const bool same = arm_.number() == order.number();
  v1::ArmState::Status status = arm_.status();
  if (order.action() == v1::ArmOrder::ARM && !same) {
    status = current_step_.value_or(-1) >= order.step() ? v1::ArmState::REFUSED : v1::ArmState::ARMED;
  } else if (order.action() == v1::ArmOrder::AGREE && same && status == v1::ArmState::ARMED) {
    status = v1::ArmState::AGREED;
  } else if (order.action() == v1::ArmOrder::DISARM) {
    status = v1::ArmState::DISARMED;
  }
  if (same && status == arm_.status()) return;
  arm_.set_number(order.number());
  arm_.set_step(order.step());
  arm_.set_status(status);
  Changed();
}

void ThinAgent::Save(int64_t step) {
  if (stopped_) return;
  SaveInWork& save = save_.emplace();
  save.state.set_step(step);
  save.state.set_phase(v1::SaveState::BEGUN);
  save.state.set_layout_digest(layout_digest_);
  save.state.set_call(++calls_);
  save.state.set_trainer_incarnation(trainer_);
  around_.reached(Milestone::kBegun, options_.rank);
  Changed();
  AdvanceSave();
}

void ThinAgent::ApplySave(const v1::SaveOrder& order) {
  if (!save_ || order.step() != save_->state.step()) return;
  SaveInWork& save = *save_;
  // Begun after the request that this answers was sent.
  if (told_call_ != save.state.call()) return;
  if (order.call() != 0 && order.call() != save.state.call()) return;
  if (!order.request_id().empty()) save.state.set_request_id(order.request_id());
  switch (order.action()) {
    case v1::SaveOrder::COMMITTED:
    case v1::SaveOrder::ABORTED: {
      const bool committed = order.action() == v1::SaveOrder::COMMITTED;
      if (!committed) error_ = StatusFromProto(order.error());
      current_step_ = save.state.step();
      save_.reset();
      around_.reached(committed ? Milestone::kCommitted : Milestone::kAborted, options_.rank);
      return Changed();
    }
    case v1::SaveOrder::ABORT:
      if (save.state.phase() == v1::SaveState::STOPPED) return;
      save.order = order;
      save.state.set_attempt(order.attempt());
      save.state.set_phase(v1::SaveState::STOPPED);
      return Changed();
    case v1::SaveOrder::WAIT:
    case v1::SaveOrder::STAGE:
    case v1::SaveOrder::WRITE:
      if (save.state.attempt() != order.attempt()) Changed();
      if (order.attempt_nonce() != 0 || order.attempt() != save.state.attempt()) {
        save.state.set_attempt_nonce(order.attempt_nonce());
      }
      save.state.set_attempt(order.attempt());
      save.order = order;
      return;
    default:
      return;
  }
}

void ThinAgent::AdvanceSave() {
  if (!save_) return;
  SaveInWork& save = *save_;
  const bool ordered = save.order.action() == v1::SaveOrder::STAGE || save.order.action() == v1::SaveOrder::WRITE;
  const v1::SaveState::Phase phase = save.state.phase();
  if (phase == v1::SaveState::BEGUN) {
    if (ordered && save.order.plan_digest() != plan_digest_) return WantPart(save.order.plan_digest());
    // Nothing here has changed, so the trainer need not wait for the other ranks.
    const bool cached = !plan_digest_.empty() && (current_plan_.empty() || current_plan_ == plan_digest_);
    if (!ordered && !cached) return;
    save.state.set_phase(v1::SaveState::STAGING);
    save.state.set_plan_digest(plan_digest_);
    uint64_t total = 0;
    for (const v1::PlannedFile& file : part_.files()) total += file.header_bytes() + file.data_bytes();
    save.state.set_bytes_total(total);
    save.state.set_all_replicas_checked(ordered ? save.order.check_replicas() : current_plan_checks_);
    Changed();
    around_.loop.After(options_.stage_time, [this, call = save.state.call()] { OnStaged(call); });
    return;
  }
  if (!ordered || (phase != v1::SaveState::STAGING && !Staged(phase))) return;
  if (save.order.plan_digest() != save.state.plan_digest()) {
    // Another rank's layout changed.
    if (save.order.plan_digest() != plan_digest_) return WantPart(save.order.plan_digest());
    save.state.set_plan_digest(plan_digest_);
    Changed();
  }
  if (save.order.action() != v1::SaveOrder::WRITE) return;
  if (!std::exchange(save.ordered_to_write, true)) {
    around_.reached(Milestone::kWriteOrder, options_.rank);
    if (options_.dies_before_writing) return Stop();
  }
  if (save.order.attempt() == save.write_attempt && save.order.attempt_nonce() == save.write_nonce) return;
  if (phase == v1::SaveState::STAGING) return;
  // In the midst of another attempt its files are given up: the timer below finds another attempt.
  save.state.set_phase(v1::SaveState::WRITING);
  save.state.clear_result();
  save.state.set_bytes_done(0);
  save.write_attempt = save.order.attempt();
  save.write_nonce = save.order.attempt_nonce();
  Changed();
  around_.loop.After(options_.write_time, [this, call = save.state.call(), attempt = save.write_attempt,
                                           nonce = save.write_nonce] { OnWriteEnded(call, attempt, nonce); });
}

void ThinAgent::OnStaged(uint64_t call) {
  if (stopped_ || !save_ || save_->state.call() != call || save_->state.phase() != v1::SaveState::STAGING) return;
  save_->state.set_phase(v1::SaveState::STAGED);
  v1::ReplicaChecksum& meta = *save_->state.add_replica_checksums();
  meta.set_item(shards_);
  meta.set_crc32c(kObjectChecksum);
  meta.set_object_bytes(kObjectBytes);
  around_.reached(Milestone::kStaged, options_.rank);
  Changed();
  AdvanceSave();
}

void ThinAgent::OnWriteEnded(uint64_t call, uint32_t attempt, uint64_t nonce) {
  if (stopped_ || !save_ || save_->state.call() != call || save_->state.phase() != v1::SaveState::WRITING) return;
  if (save_->write_attempt != attempt || save_->write_nonce != nonce) return;
  auto result = WriteFiles(save_->order);
  if (!result.ok()) return FailSave(result.status());
  *save_->state.mutable_result() = *std::move(result);
  save_->state.set_bytes_done(save_->state.bytes_total());
  save_->state.set_phase(v1::SaveState::WRITTEN);
  around_.reached(Milestone::kWritten, options_.rank);
  Changed();
}

absl::StatusOr<v1::WriteResult> ThinAgent::WriteFiles(const v1::SaveOrder& order) {
  v1::WriteResult result;
  if (around_.storage != nullptr) {
    CAIRN_RETURN_IF_ERROR(CheckAttemptOwner(*around_.storage, order.directory(), order.attempt_nonce()));
  }
  for (const v1::PlannedFile& file : part_.files()) {
    const uint64_t bytes = file.header_bytes() + file.data_bytes();
    v1::FileResult& written = *result.add_files();
    written.set_file_bytes(bytes);
    written.set_header_crc32c(static_cast<uint32_t>(random_()));
    for (const uint32_t item : file.items()) {
      const bool object = item >= shards_ && item < shards_ + 2;
      // Like the checksums of real tensors they cannot be compressed.
      written.add_item_checksums(item == shards_ ? kObjectChecksum : static_cast<uint32_t>(random_()));
      if (object) written.add_object_sizes(kObjectBytes);
    }
    if (around_.storage == nullptr) continue;
    const std::string path = absl::StrCat(order.directory(), "/", file.name(), ".safetensors");
    CAIRN_ASSIGN_OR_RETURN(const UniqueFd fd, around_.storage->OpenFile(path, O_CREAT | O_WRONLY));
    if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
      return MakeError(Reason::kStorageError, absl::StrCat("cannot make ", path, " as large as planned"));
    }
  }
  return result;
}

void ThinAgent::FailSave(const absl::Status& error) {
  if (!save_) return;
  *save_->state.mutable_error() = StatusToProto(error);
  save_->state.set_phase(v1::SaveState::FAILED);
  Changed();
}

void ThinAgent::Load(uint64_t number, std::optional<int64_t> step) {
  if (stopped_) return;
  LoadInWork& load = load_.emplace();
  load.state.set_number(number);
  load.state.set_phase(v1::LoadState::BEGUN);
  if (step) load.state.set_step(*step);
  load.state.set_layout_digest(layout_digest_);
  load.state.set_strict(true);
  load.state.set_trainer_incarnation(trainer_);
  Changed();
}

void ThinAgent::ApplyLoad(const v1::LoadOrder& order) {
  if (!load_ || order.number() != load_->state.number() || told_load_ != order.number()) return;
  if (order.trainer_incarnation() != 0 && order.trainer_incarnation() != trainer_) return;
  switch (order.action()) {
    case v1::LoadOrder::READ:
      if (load_->state.phase() != v1::LoadState::BEGUN) return;
      if (load_->order.action() != v1::LoadOrder::READ) around_.reached(Milestone::kReadOrder, options_.rank);
      load_->order = order;
      return;  // AdvanceLoad follows
    case v1::LoadOrder::ABORT:
      if (load_->state.phase() == v1::LoadState::STOPPED) return;
      error_ = StatusFromProto(order.error());
      load_->state.set_phase(v1::LoadState::STOPPED);
      return Changed();
    case v1::LoadOrder::DONE:
    case v1::LoadOrder::FAILED: {
      const bool done = order.action() == v1::LoadOrder::DONE;
      if (!done) error_ = StatusFromProto(order.error());
      load_.reset();
      around_.reached(done ? Milestone::kLoaded : Milestone::kLoadFailed, options_.rank);
      return Changed();
    }
    default:
      return;
  }
}

void ThinAgent::AdvanceLoad() {
  if (!load_ || load_->state.phase() != v1::LoadState::BEGUN) return;
  if (load_->order.action() == v1::LoadOrder::READ) WantPart(load_->order.plan_digest());
}

}  // namespace cairn
