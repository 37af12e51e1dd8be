#include "agent/runtime/agent.h"

#include <grpcpp/health_check_service_interface.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "agent/sockets/predecessor.h"
#include "agent/sockets/socket_directory.h"
#include "common/base/overloaded.h"
#include "common/base/random_id.h"
#include "common/base/time_proto.h"
#include "common/base/version.h"
#include "common/process/log.h"
#include "common/rpc/address.h"
#include "common/rpc/endpoint.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "store/open/open_storage.h"

namespace cairn {
namespace {

// The name by which gRPC's health service says whether the agent hears from its coordinator; the empty name says
// whether the agent itself serves.
constexpr char kCoordinatorHealth[] = "coordinator";
// A trainer that waits for an outcome asks in calls that follow each other. An agent that ends does not end sooner
// after an outcome: whoever asked for the save may hear of it first, and then ends the agent.
constexpr absl::Duration kTimeToAsk = absl::Seconds(3);
constexpr absl::Duration kTickInterval = absl::Milliseconds(50);
// How old the coordinator's idea of the trainer's step may become.
constexpr absl::Duration kStepInterval = absl::Milliseconds(500);
// So often the agent looks how the trainer's process stands. The coordinator hears of it when that has changed.
constexpr absl::Duration kProcessInterval = absl::Seconds(1);

std::string ReadBootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

}  // namespace

Agent::Agent(AgentOptions options, std::shared_ptr<TokenSource> tokens, std::unique_ptr<Exchange> exchange)
    : options_(std::move(options)),
      incarnation_(RandomId()),
      tokens_(std::move(tokens)),
      boot_id_(ReadBootId()),
      pool_(options_.memory_budget, FaultThreads(), options_.huge_pages),
      transfers_({options_.job, options_.rank, incarnation_}),
      host_({.job = options_.job,
             .rank = options_.rank,
             .world_size = options_.world_size,
             .incarnation = incarnation_,
             .memory_budget = options_.memory_budget,
             .round_bytes = options_.round_bytes,
             .slab_loads = options_.slab_loads},
            Clock::Real(), [this](Action action) { Execute(std::move(action)); }),
      exchange_(std::move(exchange)) {}

absl::StatusOr<std::unique_ptr<Agent>> Agent::Start(AgentOptions options, std::unique_ptr<Exchange> exchange) {
  CAIRN_RETURN_IF_ERROR(CheckListenAddress(options.listen, !options.token_file.empty()));
  CAIRN_ASSIGN_OR_RETURN(auto tokens, TokenSource::Open({.insecure = options.insecure,
                                                         .file = options.token_file,
                                                         .address = options.coordinator,
                                                         .root = options.root}));
  if (options.socket_directory.empty()) {
    options.socket_directory = DefaultSocketDirectory(options.job, options.rank);
  }
  CAIRN_RETURN_IF_ERROR(SharedMemory::CheckSealing());
  std::unique_ptr<Agent> agent(new Agent(std::move(options), std::move(tokens), std::move(exchange)));
  const AgentOptions& given = agent->options_;
  CAIRN_ASSIGN_OR_RETURN(agent->storage_, OpenStorage(given.root, /*create=*/false, given.direct_io));
  agent->root_ = std::make_unique<RootGuard>(*agent->storage_, [raw = agent.get()] {
    raw->host_.Do([](Session& session, absl::Time) { session.OnUnregistered(); });
  });
  const UserPolicy policy(given.allowed_users);
  CAIRN_RETURN_IF_ERROR(PrepareSocketDirectory(given.socket_directory, !policy.only_self()));
  CAIRN_ASSIGN_OR_RETURN(agent->descriptors_,
                         DescriptorSocket::Listen(given.socket_directory + "/descriptors.sock", policy,
                                                  {given.job, given.rank, agent->incarnation_}));
  CAIRN_RETURN_IF_ERROR(agent->StartTransferServer());
  agent->transfer_ = std::make_unique<TransferContext>(
      TransferContext{given.job, given.rank, agent->boot_id_, given.shared_memory, given.round_bytes, agent->tokens_,
                      *agent->descriptors_, agent->pool_, agent->transfers_});
  const v1::NcclSupport support = agent->StartExchange();
  const ExecutorContext context = {
      given, *agent->storage_, *agent->root_, agent->host_, agent->counters_, *agent->transfer_, *agent->exchange_};
  agent->saves_ = std::make_unique<SaveExecutor>(context);
  agent->loads_ = std::make_unique<LoadExecutor>(context);
  agent->devices_ = std::make_unique<DeviceExecutor>(context);
  agent->watch_ = std::make_unique<TrainerWatch>([raw = agent.get()](uint64_t trainer, TrainerEnd how) {
    Log(LogLevel::kWarn, "trainer_ended", {{"seen_by", how == TrainerEnd::kEnded ? "process" : "connection"}});
    raw->TrainerGone(trainer, how);
  });
  if (!agent->watch_->works()) {
    return MakeError(Reason::kMemoryLimit, "the process has no file descriptor left to watch its trainers (ulimit -n)");
  }
  CoordinatorLinkOptions link;
  link.address = given.coordinator;
  link.tokens = agent->tokens_;
  link.register_timeout = given.register_timeout;
  link.registration.set_world_size(given.world_size);
  link.registration.set_node(given.node);
  link.registration.set_descriptor_socket(agent->descriptors_->path());
  std::vector<uint64_t> incarnations = PredecessorsIn(agent->Place());
  link.registration.mutable_predecessors()->Add(incarnations.begin(), incarnations.end());
  // It may be killed before it hears that it holds the rank.
  incarnations.push_back(agent->incarnation_);
  agent->LeaveIncarnations(incarnations);
  link.registration.set_transfer_address(agent->transfer_address_);
  link.registration.set_boot_id(agent->boot_id_);
  *link.registration.mutable_nccl() = support;
  link.registration.set_protocol(kProtocolVersion);
  link.registration.set_version(std::string(kVersion));
  link.root = given.root;
  link.read_root_proof = [raw = agent.get()] { return raw->root_->ReadProof(); };
  link.on_registered = [raw = agent.get()](const std::string& proof) {
    raw->root_->Accepted(proof);
    raw->LeaveIncarnations({raw->incarnation_});
  };
  link.on_heard = [raw = agent.get()](bool answers) {
    raw->transfer_listener_->SetServing(kCoordinatorHealth, answers);
  };
  link.current_step = [raw = agent.get()] { return raw->CurrentStep(); };
  link.on_fatal = [raw = agent.get()](const absl::Status& error) {
    if (raw->options_.on_fatal) raw->options_.on_fatal(error);
    raw->refused_ = true;
    raw->host_.Do([](Session& session, absl::Time) { session.OnUnregistered(); });  // who drains looks again
  };
  agent->link_ = std::make_unique<CoordinatorLink>(agent->host_, std::move(link));
  agent->link_->Start();
  agent->ticker_ = std::thread([raw = agent.get()] { raw->Tick(); });
  return agent;
}

AgentPlace Agent::Place() const { return {options_.socket_directory, boot_id_}; }

void Agent::LeaveIncarnations(const std::vector<uint64_t>& incarnations) const {
  if (const auto left = LeaveToSuccessor(Place(), incarnations); !left.ok()) {
    Log(LogLevel::kWarn, "successor_waits_for_lease", {{"error", left}});
  }
}

v1::NcclSupport Agent::StartExchange() {
  return exchange_->Start(*transfer_, [this](std::vector<v1::GroupState> states) {
    host_.Do([&](Session& session, absl::Time) { session.OnGroups(std::move(states)); });
    loads_->PrepareExchanges();
  });
}

Agent::~Agent() { Stop(false); }

void Agent::Quiesce() {
  if (loads_ == nullptr) return;  // Start has failed
  saves_->Cancel();
  loads_->EndAll();
}

void Agent::Stop(bool unregister) {
  {
    MutexLock lock(mutex_);
    if (std::exchange(stopped_, true)) return;
    ended_.NotifyAll();
  }
  Quiesce();
  if (ticker_.joinable()) ticker_.join();
  if (transfer_listener_ != nullptr) transfer_listener_->Stop();
  if (transfer_server_ != nullptr)
    transfer_server_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  if (link_ != nullptr) link_->Stop(unregister);
  watch_.reset();
  host_.Stop();
  if (saves_ != nullptr) saves_->Stop();
  if (loads_ != nullptr) loads_->Stop();
  exchange_->Stop();
  if (devices_ != nullptr) devices_->Stop();
}

absl::Time Agent::LastOutcome() {
  const uint64_t outcomes = host_.Do([](Session& session, absl::Time) { return session.saves().ended(); });
  MutexLock lock(mutex_);
  if (std::exchange(outcomes_, outcomes) != outcomes) last_outcome_ = Clock::Real().SteadyNow();
  return last_outcome_;
}

void Agent::LetTrainerAsk(absl::Time deadline) {
  while (true) {
    uint64_t version = 0;
    const bool attached = host_.Do([&](Session& session, absl::Time) {
      version = session.version();
      return session.attached_trainer().has_value();
    });
    const absl::Duration left = deadline - Clock::Real().SteadyNow();
    if (!attached || left <= absl::ZeroDuration()) return;
    host_.WaitForChange(version, left);
  }
}

absl::Status Agent::Drain(absl::Duration timeout) {
  transfer_listener_->SetAllServing(false);
  const absl::Time deadline = Clock::Real().SteadyNow() + timeout;
  while (true) {
    uint64_t version = 0;
    const std::string held = host_.Do([&](Session& session, absl::Time) {
      version = session.version();
      return session.saves().HoldsStaged() ? session.saves().SlabHolders() : "";
    });
    const absl::Duration left = deadline - Clock::Real().SteadyNow();
    if (held.empty()) {
      LetTrainerAsk(std::min(deadline, LastOutcome() + kTimeToAsk));
      return absl::OkStatus();
    }
    if (refused_ || left <= absl::ZeroDuration()) {
      return MakeError(Reason::kTimedOut, absl::StrCat("the agent ends, and ", held, " has no outcome yet"));
    }
    host_.WaitForChange(version, left);
  }
}

absl::StatusOr<v1::AttachResponse> Agent::Attach(const v1::AttachRequest& request, const Peer& peer,
                                                 const PeerEnd& end) {
  if (request.trainer_incarnation() == 0) return MakeError(Reason::kBadRequest, "a trainer's incarnation is not 0");
  if (request.protocol() > kProtocolVersion) {
    return MakeError(Reason::kUnsupported, absl::StrCat("the trainer speaks protocol ", request.protocol(),
                                                        ", this agent up to ", kProtocolVersion));
  }
  MutexLock attaching(attaching_);
  CAIRN_RETURN_IF_ERROR(host_.Do([&](Session& session, absl::Time) -> absl::Status {
    const absl::Status place = request.has_place() ? session.CheckPlace(request.place()) : absl::OkStatus();
    if (!place.ok()) return place;
    return session.CheckAttach(request.trainer_incarnation(), request.previous_agent());
  }));
  v1::AttachResponse response;
  {
    MutexLock lock(mutex_);
    if (page_trainer_ != request.trainer_incarnation()) {
      CAIRN_ASSIGN_OR_RETURN(std::shared_ptr<ControlPage> page, ControlPage::Create());
      CAIRN_ASSIGN_OR_RETURN(const uint64_t id, descriptors_->Offer(page->memory(), false));
      if (page_id_ != 0) descriptors_->Withdraw(page_id_);
      if (page_ != nullptr) page_->Replaced();
      page_ = std::move(page);
      page_id_ = id;
      page_trainer_ = request.trainer_incarnation();
    }
    response.set_control_page_descriptor(page_id_);
    process_ = end.process == nullptr ? nullptr : ProcessStatus::Open(peer.pid, *end.process);
  }
  const absl::Duration lease_ttl = host_.Do([&](Session& session, absl::Time) {
    session.Attach(request.trainer_incarnation());
    return session.lease_ttl();
  });
  LookAtTrainer();
  // Only now: one that has ended already is told to the session at once, which must know it by then.
  if (end.process != nullptr) {
    watch_->WatchProcess(request.trainer_incarnation(), end.process);
  } else if (end.connection != nullptr) {
    watch_->WatchConnection(request.trainer_incarnation(), end.connection);
  }
  Log(LogLevel::kInfo, "trainer_attached",
      {{"pid", peer.pid},
       {"watched", end.process != nullptr      ? "process"
                   : end.connection != nullptr ? "connection"
                                               : "no"},
       {"client", request.client_version()}});
  response.set_job(options_.job);
  response.set_rank(options_.rank);
  response.set_world_size(options_.world_size);
  response.set_agent_incarnation(incarnation_);
  response.set_descriptor_socket(descriptors_->path());
  response.set_agent_version(std::string(kVersion));
  if (lease_ttl > absl::ZeroDuration()) {
    SetDuration(lease_ttl, *response.mutable_lease_ttl());
  }
  return response;
}

void Agent::TrainerGone(uint64_t incarnation, TrainerEnd how) {
  {
    MutexLock lock(mutex_);
    if (page_trainer_ == incarnation) {
      page_.reset();
      descriptors_->Withdraw(page_id_);
      page_id_ = 0;
      page_trainer_ = 0;
      process_.reset();
    }
  }
  if (how == TrainerEnd::kUnmapped) watch_->Forget(incarnation);
  host_.Do([&](Session& session, absl::Time) { session.OnTrainerGone(incarnation, how); });
}

std::optional<int64_t> Agent::CurrentStep() {
  const std::shared_ptr<ControlPage> page = Page();
  return page ? page->CurrentStep() : std::nullopt;
}

std::shared_ptr<ControlPage> Agent::Page() {
  MutexLock lock(mutex_);
  return page_;
}

void Agent::Execute(Action action) {
  std::visit(Overloaded{
                 [&](const action::PutLayout& put) { link_->PutLayout(put.layout); },
                 [&](const action::GetPlan& get) { link_->GetPlan(get.digest, get.known); },
                 [&](const action::GetPeers& peers) { link_->GetPeers(peers.ranks); },
                 [&](const action::MakeSlab& slab) {
                   devices_->LetGoOfSlab();
                   saves_->MakeSlab(slab.bytes);
                 },
                 [&](const action::GiveUpSlab&) { saves_->GiveUpSlab(); },
                 [&](const action::StartWrite& write) { saves_->StartWrite(write, Page()); },
                 [&](const action::EndStaging& end) { saves_->EndStaging(end.save, end.object_bytes); },
                 [&](const action::StopWrite& stop) { saves_->StopWrite(stop.save); },
                 [&](const action::DecideMoves& moves) { saves_->DecideMoves(moves.save, moves.exchange); },
                 [&](const action::EndLending& lending) { saves_->EndLending(lending.save); },
                 [&](const action::ControlPage& page) { ApplyToPage(page.order); },
                 [&](const action::StartRead& read) { loads_->Start(read, saves_->ImageOf(read.kept)); },
                 [&](const action::LendSource& lend) { loads_->LendSource(lend.number); },
                 [&](const action::DecideExchange& decide) { loads_->DecideExchange(decide.number, decide.exchange); },
                 [&](const action::FollowGroups& follow) { exchange_->Follow(follow.orders); },
                 [&](const action::StopRead& stop) { loads_->End(stop.number); },
                 [&](const action::AwaitDeviceMemory& await) { devices_->Await(await); },
                 [&](const action::DropDeviceMemory& drop) { devices_->Drop(drop); },
                 [&](const action::EndDeviceMemory&) { devices_->End(); },
                 [&](const action::CopyFromDevice& copy) { devices_->Copy(copy, saves_->SlabOf(copy.slab)); },
                 [&](const action::StopDeviceCopy& stop) { devices_->StopCopy(stop.copy); },
             },
             action);
}

ConnectionListener::KeysNow Agent::TransferKeys() const {
  if (tokens_->insecure()) return nullptr;
  return [tokens = tokens_] { return tokens->Keys(ServerRole::kAgent); };
}

absl::Status Agent::StartTransferServer() {
  grpc::ServerBuilder builder;
  ConfigureServer(builder);
  CAIRN_ASSIGN_OR_RETURN(transfer_listener_, ConnectionListener::Listen(options_.listen, TransferKeys()));
  transfer_listener_->AddTo(builder);
  builder.RegisterService(&transfers_);
  grpc::EnableDefaultHealthCheckService(true);
  transfer_server_ = builder.BuildAndStart();
  if (transfer_server_ == nullptr) return MakeError(Reason::kInternal, "the server of transfers does not start");
  std::string host = HostAndPort(transfer_listener_->address()).first;
  if (host == "0.0.0.0" || host == "::") host = options_.node;
  transfer_address_ = options_.advertise.empty() ? JoinHostPort(host, transfer_listener_->port())
                                                 : CanonicalAddress(options_.advertise);
  CAIRN_RETURN_IF_ERROR(transfer_listener_->Serve(*transfer_server_));
  transfer_listener_->SetServing(kCoordinatorHealth, false);
  return absl::OkStatus();
}

void Agent::ApplyToPage(const v1::ArmOrder& order) {
  auto status = v1::ArmState::REFUSED;
  {
    MutexLock lock(mutex_);
    if (order.action() == v1::ArmOrder::DISARM) {
      if (page_) page_->Disarm();
      status = v1::ArmState::DISARMED;
    } else if (order.action() == v1::ArmOrder::ARM) {
      if (page_ && page_->Arm(order.step())) status = v1::ArmState::ARMED;
    } else if (page_ && page_->Agree(order.step())) {
      status = v1::ArmState::AGREED;
    }
  }
  host_.Do([&](Session& session, absl::Time) { session.OnControlPage(order.number(), status); });
}

void Agent::LookAtTrainer() {
  uint64_t trainer = 0;
  auto process = v1::JobRank::TRAINER_PROCESS_UNSPECIFIED;
  {
    MutexLock lock(mutex_);
    if (process_ == nullptr) return;
    trainer = page_trainer_;
    process = process_->Look();
  }
  host_.Do([&](Session& session, absl::Time) { session.OnTrainerProcess(trainer, process); });
}

// Takes up what changes without an event: deadlines, the writer's progress, the trainer's step and process.
void Agent::Tick() {
  std::optional<int64_t> told_step;
  absl::Time told_at = absl::InfinitePast();
  absl::Time looked_at = absl::InfinitePast();
  while (true) {
    {
      MutexLock lock(mutex_);
      if (!stopped_) ended_.WaitFor(mutex_, kTickInterval);
      if (stopped_) return;
    }
    saves_->Tick();
    loads_->Tick();
    host_.Tick();
    (void)LastOutcome();
    const absl::Time now = Clock::Real().SteadyNow();
    if (const auto step = CurrentStep(); step != told_step && now - told_at >= kStepInterval) {
      told_step = step;
      told_at = now;
      link_->Nudge();
    }
    if (now - looked_at >= kProcessInterval) {
      looked_at = now;
      LookAtTrainer();
    }
  }
}

}  // namespace cairn
