#include "agent/execution/load_executor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/execution/import_permission.h"
#include "agent/staging/memory_limit.h"
#include "agent/staging/shared_memory.h"
#include "agent/transport/host_round_fetcher.h"
#include "common/base/enum_text.h"
#include "common/process/log.h"
#include "common/resources/memory.h"
#include "common/rpc/transport_use.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// A usual machine has as many ranks, each of which reads about as much as this one.
constexpr uint64_t kRanksOfMachine = 8;

// True if what this rank reads may stay in the page cache, where the next load of it is quickest: a restarted trainer,
// another job on the machine.
bool FitsPageCache(uint64_t bytes) {
  return CheckMemory(kRanksOfMachine * bytes, /*held=*/0, /*budget=*/0, ReadMemoryLimits()).ok();
}

}  // namespace

LoadExecutor::LoadExecutor(ExecutorContext context) : context_(context) {}

LoadExecutor::~LoadExecutor() { Stop(); }

void LoadExecutor::Start(const action::StartRead& start, std::shared_ptr<SlabImage> slab) {
  queue_.Post([this, start, slab = std::move(slab)] { StartNow(start, slab); });  // makes memory, looks at the root
}

void LoadExecutor::LendSource(uint64_t number) {
  queue_.Post([this, number] { LendSourceNow(number); });
}

void LoadExecutor::PrepareExchanges() {
  queue_.Post([this] {
    for (const ActiveLoad& load : AllActive()) {
      if (load.exchange != nullptr) load.exchange->Prepare();
    }
  });
}

void LoadExecutor::DecideExchange(uint64_t number, const v1::Exchange& exchange) {
  queue_.Post([this, number, exchange] { DecideExchangeNow(number, exchange); });
}

void LoadExecutor::DecideExchangeNow(uint64_t number, const v1::Exchange& exchange) {
  const ActiveLoad load = FindActive(number);
  if (load.consumer == nullptr) return;
  if (exchange.way() == v1::Exchange::HOST) {
    Log(LogLevel::kInfo, "transport",
        {{"load", number}, {"transport", TransportText({{v1::TRANSPORT_GRPC}, exchange.reason()})}});
    // First: what it kept room for is room for the host transport's windows.
    if (load.exchange != nullptr) load.exchange->GoByHost();
    load.consumer->GoByHost(exchange.reason());
  } else if (load.exchange == nullptr) {
    Fail(number, MakeError(Reason::kInternal, "the bytes are to go a way that this rank has refused"));
  } else if (const absl::Status begun = load.exchange->Begin(exchange.group()); !begun.ok()) {
    Fail(number, begun);
  }
}

void LoadExecutor::End(uint64_t number) {
  queue_.Post([this, number] { EndNow(number); });
}

LoadExecutor::ActiveLoad LoadExecutor::FindActive(uint64_t number) {
  MutexLock lock(mutex_);
  const auto load = loads_.find(number);
  return load == loads_.end() ? ActiveLoad() : load->second;
}

std::vector<LoadExecutor::ActiveLoad> LoadExecutor::AllActive() {
  std::vector<ActiveLoad> loads;
  MutexLock lock(mutex_);
  for (const auto& [number, load] : loads_) loads.push_back(load);
  return loads;
}

void LoadExecutor::ReportProgress(uint64_t number) {
  if (const ActiveLoad load = FindActive(number); load.lender != nullptr) ReportProgress(load);
}

void LoadExecutor::Tick() {
  for (const ActiveLoad& load : AllActive()) ReportProgress(load);
  DestroyEnded();
}

bool LoadExecutor::empty() {
  MutexLock lock(mutex_);
  return loads_.empty();
}

void LoadExecutor::EndAll() {
  std::vector<uint64_t> numbers;
  {
    MutexLock lock(mutex_);
    for (const auto& [number, load] : loads_) numbers.push_back(number);
  }
  for (uint64_t number : numbers) EndNow(number);
}

void LoadExecutor::Stop() {
  {
    MutexLock lock(mutex_);
    stopped_ = true;
  }
  queue_.Stop();
  EndAll();
}

void LoadExecutor::ReportProgress(const ActiveLoad& load) {
  const ByteServer::Progress read = load.lender->progress();
  context_.host.Do([&](Session& session, absl::Time) {
    session.loads().OnProgress(
        load.number, {read.bytes_done, read.storage_bytes, read.io_path, read.all_read, load.consumer->transport()});
  });
}

void LoadExecutor::Fail(uint64_t number, const absl::Status& error) {
  Log(LogLevel::kError, "load_failed", {{"load", number}, {"error", error}});
  context_.host.Do([&](Session& session, absl::Time) { session.loads().OnFailed(number, error); });
}

absl::Status LoadExecutor::MakeSource(const action::StartRead& start, ActiveLoad& load) {
  // Not out of the pool: a trainer that ended may have it mapped still. A trainer maps it even if it lends no byte.
  const uint64_t bytes = std::max<uint64_t>(start.source->slab_bytes, 1);
  CAIRN_ASSIGN_OR_RETURN(auto memory, context_.transfer.pool.Make("cairn-source", bytes));
  CAIRN_ASSIGN_OR_RETURN(load.writable_id, context_.transfer.descriptors.Offer(memory, false));
  load.memory = memory;
  load.source = std::make_shared<SlabByteServer>(RoundBuffer{0, memory->bytes(), memory});
  load.lender = load.source;
  return absl::OkStatus();
}

// The trainer has it mapped and has copied: from here on others read it and nobody comes to write it.
void LoadExecutor::LendSourceNow(uint64_t number) {
  const ActiveLoad load = FindActive(number);
  if (load.source == nullptr) return;
  const auto id = context_.transfer.descriptors.Offer(load.memory, true);
  if (!id.ok()) return Fail(number, id.status());
  bool goes_on = false;
  {
    MutexLock lock(mutex_);
    const auto found = loads_.find(number);
    goes_on = found != loads_.end();
    if (goes_on) found->second.read_only_id = *id;
  }
  if (!goes_on) return context_.transfer.descriptors.Withdraw(*id);  // the agent ends
  load.source->MarkStaged(*id);
}

// Past the page cache a disk fills huge pages as quickly as it can, and for a third of the processors' time. It fills
// ordinary pages no quicker than the page cache, from which the next load is quick. So with huge pages only what
// is loaded again, by trainers that end again and again, goes there.
bool LoadExecutor::ReadsThroughPageCache(const action::StartRead& start) {
  const bool again = std::exchange(last_read_, start.plan->plan_digest()) == start.plan->plan_digest();
  return (again || !context_.transfer.pool.has_huge_pages()) && FitsPageCache(start.plan->read_bytes());
}

absl::StatusOr<std::shared_ptr<RoundSource>> LoadExecutor::MakeReader(const action::StartRead& start,
                                                                      std::shared_ptr<SlabImage> slab) {
  RoundSourceOptions options;
  options.reader.slab = std::move(slab);
  options.reader.io_threads = context_.io_threads();
  options.reader.cache = ReadsThroughPageCache(start) ? Cache::kUse : Cache::kSpare;
  options.offers = context_.transfer.ReadOnlyOffers();
  options.lends_pieces = start.reads_pieces;
  options.on_error = [this, number = start.number](const absl::Status& error) { Fail(number, error); };
  options.on_progress = [this, number = start.number] { ReportProgress(number); };
  auto reader = std::make_shared<RoundSource>(context_.storage, context_.transfer.pool, context_.options.job,
                                              start.plan, std::move(options));
  CAIRN_RETURN_IF_ERROR(reader->Start());
  return reader;
}

LoadConsumerOptions LoadExecutor::ConsumerOptions(const action::StartRead& start) {
  const v1::LoadOrder& order = start.order;
  const HostRoundFetcherOptions fetching = {
      context_.transfer.PartIn(start.plan->plan_digest(), order.transfer_token())};
  LoadConsumerOptions options;
  options.rank = context_.options.rank;
  options.load = start.number;
  options.boot_id = context_.transfer.boot_id;
  options.socket = {context_.transfer.descriptors.path(), context_.transfer.descriptors.owner().incarnation};
  options.shared_memory = context_.options.shared_memory;
  options.held = order.exchange().way() == v1::Exchange::UNDECIDED;
  options.nccl_refusal = order.exchange().reason();
  options.window_bytes = 2 * context_.options.round_bytes;
  options.connect = [fetching](const v1::TransferPeer& peer) {
    return std::make_unique<HostRoundFetcher>(peer, fetching);
  };
  options.offers = context_.transfer.ReadOnlyOffers();
  options.on_error = [this, number = start.number](const absl::Status& error) { Fail(number, error); };
  options.on_released = [this, number = start.number] { ReportProgress(number); };
  return options;
}

absl::Status LoadExecutor::Begin(const action::StartRead& start, const std::shared_ptr<SlabImage>& slab,
                                 ActiveLoad& load, RankLoad::Started& started) {
  const AgentOptions& options = context_.options;
  const v1::LoadOrder& order = start.order;
  const bool serves_other_users = !options.allowed_users.empty();
  CAIRN_RETURN_IF_ERROR(CheckImports(*start.plan, options.rank, serves_other_users, options.import_roots));
  if (order.exchange().way() == v1::Exchange::UNDECIDED) {
    auto made = context_.exchange.OfLoad(start);
    if (made.ok()) load.exchange = *std::move(made);
    started.exchange_refusal = std::string(made.status().message());
  }
  if (start.source == nullptr) {
    if (const absl::Status proven = context_.root.Check(); !proven.ok()) {
      return Annotate(proven, absl::StrCat("on ", options.node));
    }
    CAIRN_ASSIGN_OR_RETURN(load.lender, MakeReader(start, slab));
  } else {
    CAIRN_RETURN_IF_ERROR(MakeSource(start, load));
    started.source = SlabDescription{load.writable_id, load.memory->bytes()};
  }
  load.transfer = TransferService::Key::OfLoad(start.plan->plan_digest(), order.transfer_token());
  load.consumer = std::make_shared<LoadConsumer>(*start.plan, start.peers, load.lender, context_.transfer.pool,
                                                 ConsumerOptions(start));
  started.consumer = load.consumer;
  if (load.exchange != nullptr) {
    load.exchange->Serve({load.number, load.consumer, load.lender, load.memory,
                          [this, number = load.number](const absl::Status& error) { Fail(number, error); }});
  }
  context_.transfer.transfers.Add(load.transfer, order.transfer_token(), load.lender,
                                  load.exchange == nullptr ? nullptr : load.exchange->offers());
  return absl::OkStatus();
}

void LoadExecutor::StartNow(const action::StartRead& start, const std::shared_ptr<SlabImage>& slab) {
  ActiveLoad load;
  load.number = start.number;
  bool active = false;
  const absl::Status begun = WithMemory("to begin a load", [&]() -> absl::Status {
    RankLoad::Started started;
    CAIRN_RETURN_IF_ERROR(Begin(start, slab, load, started));
    Log(LogLevel::kInfo, start.source == nullptr ? "load_started" : "reshard_started",
        {{"load", load.number},
         {"step", start.order.step()},
         {"bytes", start.plan->read_bytes()},
         {"rounds", start.plan->rounds_size()},
         {"slab", slab != nullptr              ? "used"
                  : start.kept_refusal.empty() ? "no"
                                               : absl::StrCat("no: ", start.kept_refusal)}});
    {
      MutexLock lock(mutex_);
      if (stopped_) return absl::OkStatus();
      loads_[load.number] = load;
      active = true;
    }
    load.consumer->Start();
    if (load.exchange != nullptr) load.exchange->Prepare();
    context_.host.Do([&](Session& session, absl::Time) { session.loads().OnStarted(load.number, started); });
    ReportProgress(load);  // those who wait for the load look again
    return absl::OkStatus();
  });
  if (!active) GiveBack(std::move(load));  // End does not find it
  if (!begun.ok()) Fail(start.number, begun);
}

void LoadExecutor::EndNow(uint64_t number) {
  ActiveLoad load;
  {
    MutexLock lock(mutex_);
    const auto found = loads_.find(number);
    if (found != loads_.end()) {
      load = std::move(found->second);
      loads_.erase(found);
    }
  }
  if (load.lender != nullptr) {
    const ByteServer::Progress read = load.lender->progress();
    context_.counters.Read(read.bytes_done, read.storage_bytes);
    Log(LogLevel::kInfo, "load_ended",
        {{"load", number},
         {"bytes", read.bytes_done},
         {"storage_bytes", read.storage_bytes},
         {"path", EnumText(read.io_path)},
         {"transport", TransportText(load.consumer->transport())}});
    GiveBack(std::move(load));
  }
  context_.host.Do([&](Session& session, absl::Time) { session.loads().OnStopped(number); });
}

void LoadExecutor::GiveBack(ActiveLoad load) {
  const std::string why = absl::StrCat("rank ", context_.options.rank, ": load ", load.number, " has ended");
  // As when it is not served any more: consumers await the coordinator's word, which says why.
  const absl::Status unknown = MakeError(Reason::kPlanUnknown, why, {{"rank", absl::StrCat(context_.options.rank)}});
  if (load.consumer != nullptr) {
    context_.transfer.transfers.Remove(load.transfer);
    if (load.exchange != nullptr) load.exchange->StopServing();
    load.consumer->Stop(MakeError(Reason::kInterrupted, why));
    if (load.exchange != nullptr) load.exchange->Stop(unknown);  // no window of it waits for the trainer any more
  }
  if (load.lender != nullptr) load.lender->Stop(unknown);
  load.lender.reset();
  load.source.reset();
  load.memory.reset();
  for (uint64_t id : {load.writable_id, load.read_only_id}) {
    if (id != 0) context_.transfer.descriptors.Withdraw(id);
  }
  const bool exchange_ended = load.exchange == nullptr || load.exchange->ended();
  if (exchange_ended) load.exchange.reset();
  MutexLock lock(mutex_);
  if (load.consumer != nullptr) retired_.push_back(std::move(load.consumer));
  if (!exchange_ended) ending_.push_back(std::move(load.exchange));
}

void LoadExecutor::DestroyEnded() {
  std::vector<std::shared_ptr<LoadConsumer>> last;  // destroyed after the lock is given up
  std::vector<std::shared_ptr<LoadExchange>> ended;
  MutexLock lock(mutex_);
  for (auto& exchange : ending_) {
    if (exchange->ended()) ended.push_back(std::move(exchange));
  }
  std::erase(ending_, nullptr);
  for (auto& consumer : retired_) {
    if (consumer.use_count() == 1) last.push_back(std::move(consumer));
  }
  std::erase(retired_, nullptr);
}

}  // namespace cairn
