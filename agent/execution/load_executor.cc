#include "agent/execution/load_executor.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
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

// True if what this rank reads may stay in the page cache, where the next load of it is quickest: a restarted trainer,
// another job on the machine. Eight times its bytes must be available, as eight ranks a machine are usual.
bool FitsPageCache(uint64_t bytes) { return CheckMemory(8 * bytes, 0, 0, ReadMemoryLimits()).ok(); }

}  // namespace

LoadExecutor::LoadExecutor(ExecutorContext context) : context_(context) {}

LoadExecutor::~LoadExecutor() { Stop(); }

void LoadExecutor::Start(const action::StartRead& order, std::shared_ptr<SlabImage> slab) {
  queue_.Post([this, order, slab = std::move(slab)] {  // makes memory, looks at the root
    const absl::Status begun = WithMemory("to begin a load", [&] {
      Begin(order, slab);
      return absl::OkStatus();
    });
    if (!begun.ok()) Fail(order.number, begun);
  });
}

void LoadExecutor::LendSource(uint64_t number) {
  queue_.Post([this, number] { LendNow(number); });
}

void LoadExecutor::PrepareExchanges() {
  queue_.Post([this] {
    std::vector<ActiveLoad> loads;
    {
      MutexLock lock(mutex_);
      for (const auto& [number, load] : loads_) loads.push_back(load);
    }
    for (const ActiveLoad& load : loads) {
      if (load.exchange != nullptr) load.exchange->Prepare();
    }
  });
}

void LoadExecutor::DecideExchange(uint64_t number, const v1::Exchange& exchange) {
  queue_.Post([this, number, exchange] { DecideNow(number, exchange); });
}

void LoadExecutor::DecideNow(uint64_t number, const v1::Exchange& exchange) {
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

void LoadExecutor::Report(uint64_t number) {
  if (const ActiveLoad load = FindActive(number); load.source != nullptr) ReportProgress(load);
}

void LoadExecutor::Tick() {
  std::vector<ActiveLoad> loads;
  {
    MutexLock lock(mutex_);
    for (const auto& [number, load] : loads_) loads.push_back(load);
  }
  for (const ActiveLoad& load : loads) ReportProgress(load);
  loads.clear();
  DestroyRetired();
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
  const ByteServer::Progress read = load.source->progress();
  context_.host.Do([&](Session& session, absl::Time) {
    session.loads().OnProgress(
        load.number, {read.bytes_done, read.storage_bytes, read.io_path, read.all_read, load.consumer->transport()});
  });
}

void LoadExecutor::Fail(uint64_t number, const absl::Status& error) {
  Log(LogLevel::kError, "load_failed", {{"load", number}, {"error", error}});
  context_.host.Do([&](Session& session, absl::Time) { session.loads().OnFailed(number, error); });
}

absl::Status LoadExecutor::MakeSource(const action::StartRead& order, ActiveLoad& load) {
  // Not out of the pool: a trainer that ended may have it mapped still.
  const uint64_t bytes = std::max<uint64_t>(order.source->slab_bytes, 4096);
  CAIRN_ASSIGN_OR_RETURN(auto memory, context_.transfer.pool.Make("cairn-source", bytes));
  CAIRN_ASSIGN_OR_RETURN(load.writable_id, context_.transfer.descriptors.Offer(memory, false));
  load.memory = memory;
  load.lender = std::make_shared<SlabByteServer>(RoundBuffer{0, memory->bytes(), memory});
  load.source = load.lender;
  return absl::OkStatus();
}

// The trainer has it mapped and has copied: from here on others read it and nobody comes to write it.
void LoadExecutor::LendNow(uint64_t number) {
  const ActiveLoad load = FindActive(number);
  if (load.lender == nullptr) return;
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
  load.lender->MarkStaged(*id);
}

absl::StatusOr<std::shared_ptr<RoundSource>> LoadExecutor::MakeReader(const action::StartRead& order,
                                                                      std::shared_ptr<SlabImage> slab) {
  RoundSourceOptions source;
  source.reader.slab = std::move(slab);
  source.reader.io_threads = context_.options.io_threads;
  source.reader.cache = FitsPageCache(order.plan->read_bytes()) ? Cache::kUse : Cache::kSpare;
  source.offer = [this](std::shared_ptr<SharedMemory> memory) {
    return context_.transfer.descriptors.Offer(std::move(memory), true);
  };
  source.withdraw = [this](uint64_t id) { context_.transfer.descriptors.Withdraw(id); };
  source.on_error = [this, number = order.number](const absl::Status& error) { Fail(number, error); };
  source.on_progress = [this, number = order.number] { Report(number); };
  auto reader = std::make_shared<RoundSource>(context_.storage, context_.transfer.pool, context_.options.job,
                                              order.plan, std::move(source));
  CAIRN_RETURN_IF_ERROR(reader->Start());
  return reader;
}

LoadConsumerOptions LoadExecutor::ConsumerOptions(const action::StartRead& order) {
  const HostRoundFetcherOptions host = {
      context_.transfer.PartIn(order.plan->plan_digest(), order.order.transfer_token())};
  LoadConsumerOptions consumer;
  consumer.rank = context_.options.rank;
  consumer.load = order.number;
  consumer.boot_id = context_.transfer.boot_id;
  consumer.socket = {context_.transfer.descriptors.path(), context_.transfer.descriptors.owner().incarnation};
  consumer.shared_memory = context_.options.shared_memory;
  consumer.held = order.order.exchange().way() == v1::Exchange::UNDECIDED;
  consumer.nccl_refusal = order.order.exchange().reason();
  consumer.window_bytes = 2 * context_.options.round_bytes;
  consumer.connect = [host](const v1::TransferPeer& peer) { return std::make_unique<HostRoundFetcher>(peer, host); };
  consumer.offer = [this](std::shared_ptr<SharedMemory> memory) {
    return context_.transfer.descriptors.Offer(std::move(memory), true);
  };
  consumer.withdraw = [this](uint64_t id) { context_.transfer.descriptors.Withdraw(id); };
  consumer.on_error = [this, number = order.number](const absl::Status& error) { Fail(number, error); };
  consumer.on_released = [this, number = order.number] { Report(number); };
  return consumer;
}

void LoadExecutor::StopServing(const ActiveLoad& load) {
  context_.transfer.transfers.Remove(load.transfer);
  if (load.exchange != nullptr) load.exchange->StopServing();
}

void LoadExecutor::Begin(const action::StartRead& order, const std::shared_ptr<SlabImage>& slab) {
  ActiveLoad load;
  RankLoad::Started started;
  bool served = false;
  // Until it is one of the loads, nobody else ends what it has begun: not if a thread or memory is refused either.
  absl::Cleanup undo = [&] {
    if (served) StopServing(load);
    if (load.writable_id != 0) context_.transfer.descriptors.Withdraw(load.writable_id);
  };
  load.number = order.number;
  const AgentOptions& options = context_.options;
  const bool serves_other_users = !options.allowed_users.empty();
  if (const absl::Status allowed = CheckImports(*order.plan, options.rank, serves_other_users, options.import_roots);
      !allowed.ok()) {
    return Fail(load.number, allowed);
  }
  if (order.order.exchange().way() == v1::Exchange::UNDECIDED) {
    auto made = context_.exchange.OfLoad(order);
    if (made.ok()) load.exchange = *std::move(made);
    started.exchange_refusal = std::string(made.status().message());
  }
  if (order.source == nullptr) {
    if (const absl::Status proven = context_.root.Check(); !proven.ok()) {
      return Fail(load.number, Annotate(proven, absl::StrCat("on ", context_.options.node)));
    }
    auto reader = MakeReader(order, slab);
    if (!reader.ok()) return Fail(load.number, reader.status());
    load.source = *std::move(reader);
  } else if (const absl::Status made = MakeSource(order, load); !made.ok()) {
    return Fail(load.number, made);
  }
  load.consumer = std::make_shared<LoadConsumer>(*order.plan, order.peers, load.source, context_.transfer.pool,
                                                 ConsumerOptions(order));
  load.transfer = TransferService::Key::OfLoad(order.plan->plan_digest(), order.order.transfer_token());
  if (load.exchange != nullptr) {
    load.exchange->Serve({load.number, load.consumer, load.source, load.memory,
                          [this, number = load.number](const absl::Status& error) { Fail(number, error); }});
  }
  context_.transfer.transfers.Add(load.transfer, order.order.transfer_token(), load.source,
                                  load.exchange == nullptr ? nullptr : load.exchange->offers());
  served = true;
  Log(LogLevel::kInfo, order.source == nullptr ? "load_started" : "reshard_started",
      {{"load", load.number},
       {"step", order.order.step()},
       {"bytes", order.plan->read_bytes()},
       {"rounds", order.plan->rounds_size()},
       {"slab", slab != nullptr              ? "used"
                : order.kept_refusal.empty() ? "no"
                                             : absl::StrCat("no: ", order.kept_refusal)}});
  {
    MutexLock lock(mutex_);
    if (stopped_) return;
    loads_[load.number] = load;
  }
  std::move(undo).Cancel();
  load.consumer->Start();
  if (load.exchange != nullptr) load.exchange->Prepare();
  if (load.lender != nullptr) {
    started.source = SlabDescription{load.writable_id, std::max<uint64_t>(order.source->slab_bytes, 4096)};
  }
  started.consumer = load.consumer;
  context_.host.Do([&](Session& session, absl::Time) { session.loads().OnStarted(load.number, started); });
  ReportProgress(load);  // those who wait for the load look again
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
  if (load.source != nullptr) {
    const ByteServer::Progress read = load.source->progress();
    context_.counters.Read(read.bytes_done, read.storage_bytes);
    Log(LogLevel::kInfo, "load_ended",
        {{"load", number},
         {"bytes", read.bytes_done},
         {"storage_bytes", read.storage_bytes},
         {"path", EnumText(read.io_path)},
         {"transport", TransportText(load.consumer->transport())}});
    StopServing(load);
    const std::string why = absl::StrCat("rank ", context_.options.rank, ": load ", number, " has ended");
    load.consumer->Stop(MakeError(Reason::kInterrupted, why));
    // As when it is not served any more: consumers await the coordinator's word, which says why.
    const absl::Status unknown = MakeError(Reason::kPlanUnknown, why, {{"rank", absl::StrCat(context_.options.rank)}});
    if (load.exchange != nullptr) load.exchange->Stop(unknown);  // no window of it waits for the trainer any more
    load.source->Stop(unknown);
    load.source.reset();
    load.lender.reset();
    load.memory.reset();
    for (uint64_t id : {load.writable_id, load.read_only_id}) {
      if (id != 0) context_.transfer.descriptors.Withdraw(id);
    }
    const bool exchange_ended = load.exchange == nullptr || load.exchange->ended();
    if (exchange_ended) load.exchange.reset();
    MutexLock lock(mutex_);
    retired_.push_back(std::move(load.consumer));
    if (!exchange_ended) ending_.push_back(std::move(load.exchange));
  }
  context_.host.Do([&](Session& session, absl::Time) { session.loads().OnStopped(number); });
}

void LoadExecutor::DestroyRetired() {
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
