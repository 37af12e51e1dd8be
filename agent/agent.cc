#include "agent/agent.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/local/socket_directory.h"
#include "agent/log.h"
#include "agent/staging/memory_limit.h"
#include "common/base/quantity.h"
#include "common/base/random_id.h"
#include "common/base/status.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/reason.h"

namespace cairn {
namespace {

constexpr absl::Duration kTickInterval = absl::Milliseconds(50);
// How old the coordinator's idea of the trainer's step may become.
constexpr absl::Duration kStepInterval = absl::Milliseconds(500);

std::string ReadBootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

int FaultThreads() { return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 8); }

// True if what this rank reads may stay in the page cache, where the next load of it is quickest: a restarted trainer,
// another job on the machine. Eight times its bytes must be available, as eight ranks a machine are usual.
bool FitsPageCache(uint64_t bytes) { return CheckMemory(8 * bytes, 0, 0, ReadMemoryLimits()).ok(); }

// PERMISSION_DENIED (PEER_UID): the plan imports files that the trainer may have no right to read.
absl::Status CheckImports(const v1::ReadPlan& plan, const AgentOptions& options) {
  if (options.allowed_users.empty()) return absl::OkStatus();
  for (const v1::ReadFile& file : plan.file()) {
    if (!file.path().starts_with('/')) continue;
    const bool below = std::any_of(options.import_roots.begin(), options.import_roots.end(), [&](std::string root) {
      while (!root.empty() && root.back() == '/') root.pop_back();
      return file.path().starts_with(root + "/");
    });
    if (below && file.path().find("/../") == std::string::npos) continue;
    return MakeError(Reason::kPeerUid,
                     absl::StrCat("rank ", options.rank, ": its agent serves other users (--allow-uid), so it imports ",
                                  file.path(), " only if that is below an --import-root"),
                     {{"rank", absl::StrCat(options.rank)}, {"file", file.path()}});
  }
  return absl::OkStatus();
}

double Seconds(absl::Time since) { return absl::ToDoubleSeconds(Clock::Real().SteadyNow() - since); }

}  // namespace

Agent::Agent(AgentOptions options)
    : options_(std::move(options)),
      incarnation_(RandomId()),
      boot_id_(ReadBootId()),
      pool_(options_.memory_budget, FaultThreads()),
      transfers_({options_.job, options_.rank, incarnation_, options_.token}),
      host_({.job = options_.job,
             .rank = options_.rank,
             .world_size = options_.world_size,
             .incarnation = incarnation_,
             .memory_budget = options_.memory_budget,
             .round_bytes = options_.round_bytes},
            Clock::Real(), [this](Action action) { Execute(std::move(action)); }) {}

absl::StatusOr<std::unique_ptr<Agent>> Agent::Start(AgentOptions options) {
  CAIRN_RETURN_IF_ERROR(CheckListenAddress(options.listen, !options.token.empty()));
  if (options.socket_directory.empty()) {
    options.socket_directory = DefaultSocketDirectory(options.job, options.rank);
  }
  std::unique_ptr<Agent> agent(new Agent(std::move(options)));
  const AgentOptions& given = agent->options_;
  CAIRN_ASSIGN_OR_RETURN(agent->storage_, PosixStorage::Open(given.root, false));
  const UserPolicy policy(given.allowed_users);
  CAIRN_RETURN_IF_ERROR(PrepareSocketDirectory(given.socket_directory, !policy.only_self()));
  CAIRN_ASSIGN_OR_RETURN(agent->descriptors_,
                         DescriptorSocket::Listen(given.socket_directory + "/descriptors.sock", policy));
  CAIRN_RETURN_IF_ERROR(agent->StartTransferServer());
  agent->watch_ = std::make_unique<TrainerWatch>([raw = agent.get()](uint64_t trainer) {
    Log(LogLevel::kWarn, "trainer_ended");
    raw->TrainerGone(trainer, false);
  });
  CoordinatorLinkOptions link;
  link.address = given.coordinator;
  link.token = given.token;
  link.register_timeout = given.register_timeout;
  link.registration.set_world_size(given.world_size);
  link.registration.set_node(given.node);
  link.registration.set_descriptor_socket(agent->descriptors_->path());
  link.registration.set_transfer_address(agent->transfer_address_);
  link.registration.set_boot_id(agent->boot_id_);
  link.registration.set_protocol(kProtocolVersion);
  link.registration.set_version(std::string(kVersion));
  link.current_step = [raw = agent.get()] { return raw->CurrentStep(); };
  link.on_fatal = given.on_fatal ? given.on_fatal : [](const absl::Status&) {};
  agent->link_ = std::make_unique<CoordinatorLink>(agent->host_, std::move(link));
  agent->link_->Start();
  agent->ticker_ = std::thread([raw = agent.get()] { raw->Tick(); });
  return agent;
}

Agent::~Agent() { Stop(false); }

void Agent::Quiesce() {
  std::vector<uint64_t> numbers;
  {
    MutexLock lock(mutex_);
    if (writing_ != nullptr) writing_->Stop();
    for (const auto& [number, load] : loads_) numbers.push_back(number);
  }
  for (uint64_t number : numbers) StopRead(number);
}

void Agent::Stop(bool unregister) {
  {
    MutexLock lock(mutex_);
    if (std::exchange(stopped_, true)) return;
    if (writing_ != nullptr) writing_->Stop();
    ended_.NotifyAll();
  }
  Quiesce();
  if (ticker_.joinable()) ticker_.join();
  if (transfer_server_ != nullptr)
    transfer_server_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  if (link_ != nullptr) link_->Stop(unregister);
  watch_.reset();
  background_.Stop();
  loads_queue_.Stop();
  host_.Stop();
  if (writer_.joinable()) writer_.join();
  Quiesce();  // what was started meanwhile
}

bool Agent::Drain(absl::Duration timeout) {
  const absl::Time deadline = Clock::Real().SteadyNow() + timeout;
  while (true) {
    uint64_t version = 0;
    const bool holds = host_.Do([&](Session& session, absl::Time) {
      version = session.version();
      return session.HoldsStagedSaves();
    });
    const absl::Duration left = deadline - Clock::Real().SteadyNow();
    if (!holds) return true;
    if (left <= absl::ZeroDuration()) return false;
    host_.WaitForChange(version, left);
  }
}

absl::StatusOr<v1::AttachResponse> Agent::Attach(const v1::AttachRequest& request, std::optional<pid_t> pid) {
  if (request.trainer_incarnation() == 0) return MakeError(Reason::kBadRequest, "a trainer's incarnation is not 0");
  if (request.protocol() > kProtocolVersion) {
    return MakeError(Reason::kUnsupported, absl::StrCat("the trainer speaks protocol ", request.protocol(),
                                                        ", this agent up to ", kProtocolVersion));
  }
  v1::AttachResponse response;
  {
    MutexLock lock(mutex_);
    if (page_trainer_ != request.trainer_incarnation()) {
      CAIRN_ASSIGN_OR_RETURN(std::shared_ptr<ControlPage> page, ControlPage::Create());
      CAIRN_ASSIGN_OR_RETURN(const uint64_t id, descriptors_->Offer(page->memory(), false));
      if (page_id_ != 0) descriptors_->Withdraw(page_id_);
      page_ = std::move(page);
      page_id_ = id;
      page_trainer_ = request.trainer_incarnation();
    }
    response.set_control_page_descriptor(page_id_);
  }
  const bool watched = watch_->Watch(request.trainer_incarnation(), pid.value_or(0));
  host_.Do([&](Session& session, absl::Time) { session.Attach(request.trainer_incarnation()); });
  Log(LogLevel::kInfo, "trainer_attached",
      {{"pid", pid.value_or(0)}, {"watched", watched ? "yes" : "no"}, {"client", request.client_version()}});
  response.set_job(options_.job);
  response.set_rank(options_.rank);
  response.set_world_size(options_.world_size);
  response.set_agent_incarnation(incarnation_);
  response.set_descriptor_socket(descriptors_->path());
  response.set_agent_version(std::string(kVersion));
  return response;
}

void Agent::TrainerGone(uint64_t incarnation, bool detached) {
  {
    MutexLock lock(mutex_);
    if (page_trainer_ != incarnation) return;
    page_.reset();
    descriptors_->Withdraw(page_id_);
    page_id_ = 0;
    page_trainer_ = 0;
  }
  if (detached) watch_->Clear();
  host_.Do([&](Session& session, absl::Time) { session.OnTrainerGone(incarnation, detached); });
}

std::optional<int64_t> Agent::CurrentStep() {
  MutexLock lock(mutex_);
  return page_ ? page_->CurrentStep() : std::nullopt;
}

void Agent::Execute(Action action) {
  if (const auto* put = std::get_if<action::PutLayout>(&action)) {
    link_->PutLayout(put->layout);
  } else if (const auto* get = std::get_if<action::GetPlan>(&action)) {
    link_->GetPlan(get->digest, get->known);
  } else if (const auto* slab = std::get_if<action::MakeSlab>(&action)) {
    background_.Post([this, bytes = slab->bytes] { MakeSlab(bytes); });
  } else if (const auto* write = std::get_if<action::StartWrite>(&action)) {
    StartWrite(*write);
  } else if (const auto* stop = std::get_if<action::StopWrite>(&action)) {
    MutexLock lock(mutex_);
    if (writing_ != nullptr && writing_->save == stop->save) writing_->Stop();
  } else if (const auto* lending = std::get_if<action::EndLending>(&action)) {
    EndLending(lending->save);
  } else if (const auto* page = std::get_if<action::ControlPage>(&action)) {
    ApplyToPage(page->order);
  } else if (const auto* read = std::get_if<action::StartRead>(&action)) {
    if (read->source == nullptr) {
      StartRead(*read);
    } else {
      loads_queue_.Post([this, order = *read] { StartRead(order); });  // makes memory
    }
  } else if (const auto* lend = std::get_if<action::LendSource>(&action)) {
    loads_queue_.Post([this, number = lend->number] {
      std::shared_ptr<SlabLender> lender;
      {
        MutexLock lock(mutex_);
        if (const auto load = loads_.find(number); load != loads_.end()) lender = load->second.lender;
      }
      if (lender != nullptr) lender->MarkStaged();
    });
  } else if (const auto* stop_read = std::get_if<action::StopRead>(&action)) {
    loads_queue_.Post([this, number = stop_read->number] { StopRead(number); });
  }
}

absl::Status Agent::StartTransferServer() {
  grpc::ServerBuilder builder;
  ConfigureServer(builder);
  int port = 0;
  builder.AddListeningPort(options_.listen, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&transfers_);
  transfer_server_ = builder.BuildAndStart();
  if (transfer_server_ == nullptr || port == 0) {
    return MakeError(Reason::kBadRequest, absl::StrCat("--listen ", options_.listen, " cannot be bound"));
  }
  std::string host = options_.listen.substr(0, options_.listen.rfind(':'));
  if (host == "0.0.0.0" || host == "[::]") host = options_.node;
  transfer_address_ = options_.advertise.empty() ? absl::StrCat(host, ":", port) : options_.advertise;
  return absl::OkStatus();
}

std::shared_ptr<LoadConsumer> Agent::FindLoad(uint64_t number) {
  MutexLock lock(mutex_);
  const auto load = loads_.find(number);
  return load == loads_.end() ? nullptr : load->second.consumer;
}

void Agent::ReportLoad(uint64_t number) {
  ActiveLoad found;
  {
    MutexLock lock(mutex_);
    if (const auto active = loads_.find(number); active != loads_.end()) found = active->second;
  }
  if (found.source != nullptr) ReportProgress(found);
}

void Agent::ReportProgress(const ActiveLoad& load) {
  const RoundLender::Progress read = load.source->progress();
  host_.Do([&](Session& session, absl::Time) {
    session.OnReadProgress(load.number,
                           {read.bytes_done, read.storage_bytes, read.path, load.consumer->transport(), read.all_read});
  });
}

absl::Status Agent::MakeSource(const action::StartRead& order, ActiveLoad& load) {
  // Not out of the pool: a trainer that ended may have it mapped still.
  const uint64_t bytes = std::max<uint64_t>(order.source->slab_bytes, 4096);
  pool_.Trim();
  CAIRN_RETURN_IF_ERROR(CheckMemory(bytes, 0, options_.memory_budget, ReadMemoryLimits()));
  CAIRN_ASSIGN_OR_RETURN(auto memory, SharedMemory::Create("cairn-source", bytes));
  CAIRN_RETURN_IF_ERROR(memory->Populate(FaultThreads()));
  CAIRN_ASSIGN_OR_RETURN(load.writable_id, descriptors_->Offer(memory, false));
  CAIRN_ASSIGN_OR_RETURN(load.read_only_id, descriptors_->Offer(memory, true));
  load.lender = std::make_shared<SlabLender>(RoundBuffer{load.read_only_id, memory->bytes(), memory});
  load.source = load.lender;
  return absl::OkStatus();
}

std::shared_ptr<RoundSource> Agent::MakeReader(const action::StartRead& order) {
  RoundSourceOptions source;
  source.reader.io_threads = options_.io_threads;
  source.reader.range.direct = options_.direct_io && !FitsPageCache(order.plan->read_bytes());
  source.offer = [this](std::shared_ptr<SharedMemory> memory) { return descriptors_->Offer(std::move(memory), true); };
  source.withdraw = [this](uint64_t id) { descriptors_->Withdraw(id); };
  source.on_error = [this, number = order.number](const absl::Status& error) {
    Log(LogLevel::kError, "load_failed", {{"load", number}, {"error", error}});
    host_.Do([&](Session& session, absl::Time) { session.OnReadFailed(number, error); });
  };
  source.on_progress = [this, number = order.number] { ReportLoad(number); };
  return std::make_shared<RoundSource>(*storage_, pool_, options_.job, order.plan, std::move(source));
}

void Agent::StartRead(const action::StartRead& order) {
  ActiveLoad load;
  load.number = order.number;
  load.plan_digest = order.plan->plan_digest();
  LoadConsumerOptions consumer;
  consumer.job = options_.job;
  consumer.rank = options_.rank;
  consumer.boot_id = boot_id_;
  consumer.descriptor_socket = descriptors_->path();
  consumer.token = options_.token;
  consumer.shared_memory = options_.shared_memory;
  consumer.window_bytes = 2 * options_.round_bytes;
  consumer.offer = [this](std::shared_ptr<SharedMemory> memory) {
    return descriptors_->Offer(std::move(memory), true);
  };
  consumer.withdraw = [this](uint64_t id) { descriptors_->Withdraw(id); };
  consumer.on_error = [this, number = order.number](const absl::Status& error) {
    Log(LogLevel::kError, "load_failed", {{"load", number}, {"error", error}});
    host_.Do([&](Session& session, absl::Time) { session.OnReadFailed(number, error); });
  };
  if (const absl::Status allowed = CheckImports(*order.plan, options_); !allowed.ok()) {
    return consumer.on_error(allowed);
  }
  if (order.source == nullptr) {
    load.source = MakeReader(order);
  } else if (const absl::Status made = MakeSource(order, load); !made.ok()) {
    if (load.writable_id != 0) descriptors_->Withdraw(load.writable_id);
    return consumer.on_error(made);
  }
  load.consumer = std::make_shared<LoadConsumer>(order.plan, order.order, load.source, pool_, std::move(consumer));
  transfers_.Add({load.plan_digest, load.number}, order.order.transfer_token(), load.source);
  Log(LogLevel::kInfo, order.source == nullptr ? "load_started" : "reshard_started",
      {{"load", load.number},
       {"step", order.order.step()},
       {"bytes", order.plan->read_bytes()},
       {"rounds", order.plan->round_size()}});
  {
    MutexLock lock(mutex_);
    if (stopped_) return;
    loads_[load.number] = load;
  }
  load.consumer->Start();
  if (load.lender != nullptr) {
    host_.Do([&](Session& session, absl::Time) {
      session.OnSource(load.number, {load.writable_id, std::max<uint64_t>(order.source->slab_bytes, 4096)});
    });
  }
  ReportProgress(load);  // those who wait for the load look again
}

void Agent::StopRead(uint64_t number) {
  ActiveLoad load;
  {
    MutexLock lock(mutex_);
    const auto found = loads_.find(number);
    if (found != loads_.end()) {
      load = std::move(found->second);
      loads_.erase(found);
    }
  }
  if (load.source != nullptr) {
    const RoundLender::Progress read = load.source->progress();
    Log(LogLevel::kInfo, "load_ended",
        {{"load", number},
         {"bytes", read.bytes_done},
         {"storage_bytes", read.storage_bytes},
         {"path", read.path},
         {"transport", load.consumer->transport()}});
    transfers_.Remove({load.plan_digest, number});
    const std::string why = absl::StrCat("rank ", options_.rank, ": load ", number, " has ended");
    load.consumer->Stop(MakeError(Reason::kInterrupted, why));
    // As when it is not served any more: consumers await the coordinator's word, which says why.
    load.source->Stop(MakeError(Reason::kPlanUnknown, why, {{"rank", absl::StrCat(options_.rank)}}));
    load.source.reset();
    load.lender.reset();
    for (uint64_t id : {load.writable_id, load.read_only_id}) {
      if (id != 0) descriptors_->Withdraw(id);
    }
    MutexLock lock(mutex_);
    retired_.push_back(std::move(load.consumer));
  }
  host_.Do([&](Session& session, absl::Time) { session.OnReadStopped(number); });
}

void Agent::DestroyRetired() {
  std::vector<std::shared_ptr<LoadConsumer>> last;  // destroyed after the lock is given up
  MutexLock lock(mutex_);
  for (auto& consumer : retired_) {
    if (consumer.use_count() == 1) last.push_back(std::move(consumer));
  }
  std::erase(retired_, nullptr);
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

void Agent::MakeSlab(uint64_t bytes) {
  const absl::Time begin = Clock::Real().SteadyNow();
  {
    MutexLock lock(mutex_);
    if (slab_ != nullptr) {
      descriptors_->Withdraw(slab_id_);
      // A trainer may hold its mapping for a while: its pages are given back all the same.
      (void)fallocate(slab_->fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(slab_->bytes()));
      slab_.reset();
    }
  }
  const auto make = [&]() -> absl::StatusOr<SlabDescription> {
    pool_.Trim();
    CAIRN_RETURN_IF_ERROR(CheckMemory(bytes, 0, options_.memory_budget, ReadMemoryLimits()));
    CAIRN_ASSIGN_OR_RETURN(auto slab, SharedMemory::Create("cairn-slab", bytes));
    CAIRN_RETURN_IF_ERROR(slab->Populate(FaultThreads()));
    CAIRN_ASSIGN_OR_RETURN(const uint64_t id, descriptors_->Offer(slab, false));
    MutexLock lock(mutex_);
    slab_ = std::move(slab);
    slab_id_ = id;
    return SlabDescription{id, slab_->bytes()};
  };
  auto made = make();
  if (made.ok()) {
    Log(LogLevel::kInfo, "slab_made", {{"bytes", made->bytes}, {"seconds", Seconds(begin)}});
  } else {
    Log(LogLevel::kError, "slab_refused", {{"bytes", bytes}, {"error", made.status()}});
  }
  host_.Do([&](Session& session, absl::Time now) { session.OnSlab(std::move(made), now); });
}

absl::Status Agent::Lend(const action::StartWrite& order, const std::shared_ptr<SharedMemory>& slab) {
  EndLending(order.save);  // of an earlier attempt
  if (order.target->moved_out.empty()) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(const uint64_t id, descriptors_->Offer(slab, true));
  const auto lender = std::make_shared<SlabLender>(RoundBuffer{id, slab->bytes(), slab}, *order.staged, *order.target);
  lender->MarkStaged();
  const TransferService::Key key = {order.target->plan_digest, 0, order.step, order.attempt};
  {
    MutexLock lock(mutex_);
    lent_.push_back({order.save, key, id});
  }
  transfers_.Add(key, order.order.transfer_token(), lender);
  return absl::OkStatus();
}

void Agent::EndLending(uint64_t save) {
  std::vector<Lent> ended;
  {
    MutexLock lock(mutex_);
    for (const Lent& lent : lent_) {
      if (lent.save == save) ended.push_back(lent);
    }
    std::erase_if(lent_, [&](const Lent& lent) { return lent.save == save; });
  }
  for (const Lent& lent : ended) {
    transfers_.Remove(lent.key);
    descriptors_->Withdraw(lent.descriptor_id);
  }
}

void Agent::StartWrite(const action::StartWrite& order) {
  if (writer_.joinable()) writer_.join();  // the session has heard of its end
  auto run = std::make_shared<WriterRun>();
  run->save = order.save;
  if (!order.target->moved_in.empty()) {
    ShardFetcherOptions options;
    options.job = options_.job;
    options.rank = options_.rank;
    options.boot_id = boot_id_;
    options.token = options_.token;
    options.shared_memory = options_.shared_memory;
    run->fetcher = std::make_shared<ShardFetcher>(order.target, order.order, std::move(options));
  }
  std::shared_ptr<SharedMemory> slab;
  {
    MutexLock lock(mutex_);
    if (stopped_) return;
    writing_ = run;
    slab = slab_;
  }
  writer_ = std::thread([this, order, run, slab] {
    const absl::Time begin = Clock::Real().SteadyNow();
    BinWriteJob job = {order.directory, order.staged, order.target, order.object_bytes, slab->data(), nullptr};
    std::string transport;
    if (run->fetcher != nullptr) {
      job.fetch_moved = [&](size_t index, uint64_t offset, uint64_t bytes, char* to) {
        return run->fetcher->Fetch(index, offset, bytes, to);
      };
    }
    const BinWriterOptions options = {.io_threads = options_.io_threads, .direct = options_.direct_io};
    absl::StatusOr<BinWriteOutcome> outcome = BinWriteOutcome();
    if (const absl::Status lent = Lend(order, slab); !lent.ok()) outcome = lent;
    if (outcome.ok()) outcome = WriteBins(*storage_, job, options, run->stop, run->bytes_done);
    if (run->fetcher != nullptr) transport = run->fetcher->transport();
    const double seconds = Seconds(begin);
    if (outcome.ok()) {
      Log(LogLevel::kInfo, "written",
          {{"step", order.step},
           {"attempt", order.attempt},
           {"bytes", order.target->file_bytes},
           {"seconds", seconds},
           {"path", outcome->path},
           {"moved_in", order.target->moved_in.size()},
           {"moved_out", order.target->moved_out.size()},
           {"transport", transport}});
    } else {
      Log(LogLevel::kError, "write_failed",
          {{"step", order.step}, {"attempt", order.attempt}, {"error", outcome.status()}});
    }
    {
      MutexLock lock(mutex_);
      writing_.reset();
    }
    host_.Do([&](Session& session, absl::Time now) {
      if (outcome.ok()) {
        session.OnWriteEnded(order.save, std::move(outcome->result), outcome->path, transport, now);
      } else {
        session.OnWriteEnded(order.save, outcome.status(), "", "", now);
      }
    });
  });
}

// What changes without an event: deadlines, the writer's progress, the trainer's step.
void Agent::Tick() {
  std::optional<int64_t> told_step;
  absl::Time told_at = absl::InfinitePast();
  while (true) {
    std::shared_ptr<WriterRun> writing;
    std::vector<ActiveLoad> loads;
    {
      MutexLock lock(mutex_);
      if (!stopped_) ended_.WaitFor(mutex_, kTickInterval);
      if (stopped_) return;
      writing = writing_;
      for (const auto& [number, load] : loads_) loads.push_back(load);
    }
    for (const ActiveLoad& load : loads) ReportProgress(load);
    const std::vector<uint32_t> waiting_for =
        writing != nullptr && writing->fetcher != nullptr ? writing->fetcher->waiting_for() : std::vector<uint32_t>();
    loads.clear();
    DestroyRetired();
    host_.Do([&](Session& session, absl::Time now) {
      if (writing != nullptr) session.OnWriteProgress(writing->save, writing->bytes_done, waiting_for);
      session.OnTick(now);
    });
    const absl::Time now = Clock::Real().SteadyNow();
    if (const auto step = CurrentStep(); step != told_step && now - told_at >= kStepInterval) {
      told_step = step;
      told_at = now;
      link_->Nudge();
    }
  }
}

}  // namespace cairn
