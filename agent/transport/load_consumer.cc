#include "agent/transport/load_consumer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/transport/local_peer.h"
#include "common/process/log.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

// One fetches while the other waits for room or for a slow source.
constexpr int kFetchThreads = 2;

absl::Status CheckSources(const std::vector<v1::Copy>& copies, uint64_t buffer_bytes) {
  for (const v1::Copy& copy : copies) CAIRN_RETURN_IF_ERROR(CheckSource(copy, buffer_bytes));
  return absl::OkStatus();
}

void Describe(uint32_t rank, const DescriptorSource& socket, uint64_t descriptor_id, uint64_t bytes,
              v1::SlabReference& memory) {
  memory.set_descriptor_id(descriptor_id);
  memory.set_bytes(bytes);
  memory.set_descriptor_socket(socket.path);
  memory.set_agent_incarnation(socket.incarnation);
  memory.set_agent_rank(rank);
}

}  // namespace

LoadConsumer::LoadConsumer(const v1::ReadPlan& plan, const PeerMap& peers, std::shared_ptr<ByteServer> own,
                           BufferPool& pool, LoadConsumerOptions options)
    : own_(std::move(own)),
      pool_(pool),
      options_(std::move(options)),
      ledger_(plan, options_.window_bytes),
      held_(options_.held),
      nccl_refusal_(options_.nccl_refusal) {
  for (size_t number = 0; number < ledger_.sources(); ++number) {
    const Source& source = sources_.emplace_back(MakeSource(ledger_.rank(number), peers));
    if (local(number)) continue;
    Log(LogLevel::kInfo, "load_source",
        {{"load", options_.load},
         {"source", source.rank},
         {"rounds", ledger_.rounds(number)},
         {"transport", source.mapped   ? "shared-memory"
                       : options_.held ? "undecided"
                                       : "grpc"}});
  }
  if (!std::all_of(sources_.begin(), sources_.end(), [](const Source& source) { return source.mapped; })) {
    fetch_queue_ = std::make_unique<TaskQueue>(kFetchThreads);
  }
}

LoadConsumer::~LoadConsumer() { Stop(MakeError(Reason::kInterrupted, "the load has ended")); }

LoadConsumer::Source LoadConsumer::MakeSource(uint32_t rank, const PeerMap& peers) const {
  Source source;
  source.rank = rank;
  if (rank == options_.rank) {
    source.mapped = true;
    source.socket = options_.socket;
    return source;
  }
  const auto found = peers.find(rank);
  if (found == peers.end() || found->second.transfer_address().empty()) return source;
  const v1::TransferPeer& peer = found->second;
  source.mapped = options_.shared_memory && LendsMemoryHere(peer, options_.boot_id);
  source.socket = {peer.descriptor_socket(), peer.incarnation()};
  source.fetcher = options_.connect(peer);
  return source;
}

void LoadConsumer::Start() {
  for (size_t source = 0; source < sources_.size(); ++source) {
    if (local(source) || sources_[source].fetcher != nullptr) continue;
    const std::string rank = absl::StrCat(sources_[source].rank);
    return Fail(MakeError(Reason::kTransportFailed,
                          absl::StrCat("no address of rank ", rank, ", which reads for rank ", options_.rank),
                          {{"rank", rank}}));
  }
  for (size_t source = 0; source < sources_.size(); ++source) {
    if (!Holds(source)) AwaitNext(source);
  }
}

bool LoadConsumer::Holds(size_t source) {
  MutexLock lock(mutex_);
  return held_ && !sources_[source].mapped;
}

void LoadConsumer::GoByHost(std::string refusal) {
  {
    MutexLock lock(mutex_);
    if (!std::exchange(held_, false)) return;
    nccl_refusal_ = std::move(refusal);
  }
  for (size_t source = 0; source < sources_.size(); ++source) {
    if (!sources_[source].mapped) AwaitNext(source);
  }
}

absl::StatusOr<std::vector<HeldWindow>> LoadConsumer::TakeHeld(uint64_t window_bytes) {
  std::vector<HeldWindow> taken;
  MutexLock lock(mutex_);
  if (!std::exchange(held_, false)) return taken;
  for (size_t source = 0; source < sources_.size(); ++source) {
    if (sources_[source].mapped) continue;
    while (const std::optional<uint32_t> round = ledger_.NextRound(source)) {
      const std::vector<v1::Copy> copies = *ledger_.TakeRound(source, *round);
      CAIRN_ASSIGN_OR_RETURN(std::vector<CopyWindow> parts, CutIntoWindows(copies, window_bytes));
      ledger_.ExpectWindows(source, *round, parts.size());
      for (uint32_t window = 0; window < parts.size(); ++window) {
        taken.push_back({source, sources_[source].rank, {*round, window, std::move(parts[window])}});
      }
    }
  }
  return taken;
}

void LoadConsumer::HandOutHeld(const HeldWindow& held, uint64_t memory_id, uint64_t memory_bytes, uint64_t offset,
                               std::function<void()> released) {
  v1::LoadBatch batch;
  Describe(options_.rank, options_.socket, memory_id, memory_bytes, *batch.mutable_buffer());
  for (const v1::Copy& copy : held.window.copies.copies) {
    *batch.add_copies() = PackedCopy(copy, offset);
    offset += *CopyBytes(copy);
  }
  Window window{nullptr, memory_id, std::move(released)};
  {
    MutexLock lock(mutex_);
    if (!ended_.ok()) return Discard(std::move(window));
    const ConsumerLedger::Filled filled = ledger_.AddFilled(held.source, held.window.round, 0, std::move(batch));
    windows_.emplace(filled.batch, std::move(window));
    nccl_used_ = true;
  }
  Answer();
}

void LoadConsumer::AwaitNext(size_t source) {
  std::optional<uint32_t> round;
  uint32_t released_below = 0;
  {
    MutexLock lock(mutex_);
    if (!ended_.ok()) return;
    round = ledger_.NextRound(source);
    released_below = ledger_.ReleasedBelow(source);
  }
  if (!round.has_value()) return;
  if (local(source)) {
    own_->Await(options_.rank, *round, released_below,
                [this, source, round = *round](const absl::StatusOr<RoundBuffer>& arrived) {
                  if (!arrived.ok()) return Fail(arrived.status());
                  if (arrived->lent != nullptr) return OnLentRound(source, round, *arrived->lent);
                  OnRound(source, round, {arrived->descriptor_id, arrived->bytes});
                });
  } else {
    sources_[source].fetcher->Await(*round, released_below,
                                    [this, source, round = *round](const absl::StatusOr<SourceRound>& arrived) {
                                      if (!arrived.ok()) return Fail(arrived.status());
                                      OnRound(source, round, *arrived);
                                    });
  }
}

void LoadConsumer::OnLentRound(size_t source, uint32_t round, const LentRound& lent) {
  v1::LoadBatch batch;
  std::map<uint32_t, uint32_t> positions;  // of a file's number in the batch
  for (const LentRound::File& file : lent.files) {
    positions.emplace(file.file, static_cast<uint32_t>(batch.files_size()));
    v1::PieceFile& described = *batch.add_files();
    Describe(options_.rank, options_.socket, file.descriptor_id, 0, *described.mutable_file());
    described.set_may_wait(file.may_wait);
  }
  for (const RoundPiece& piece : lent.pieces) {
    const uint32_t position = positions.at(piece.file);
    v1::FilePiece& described = *batch.add_pieces();
    described.set_file(position);
    described.set_offset(lent.files[position].begin + piece.offset);
    described.set_bytes(piece.bytes());
    described.set_target(piece.target);
    described.set_target_offset(piece.target_offset);
  }
  {
    MutexLock lock(mutex_);
    if (!ended_.ok()) return;
    std::optional<std::vector<v1::Copy>> copies = ledger_.TakeRound(source, round);
    if (!copies.has_value()) return;
    ledger_.AddLent(source, round, std::move(batch), *std::move(copies));
  }
  Answer();
  AwaitNext(source);
}

void LoadConsumer::TakeRead(const v1::ReadBatch& read) {
  std::optional<ConsumerLedger::Place> place;
  {
    MutexLock lock(mutex_);
    if (!ended_.ok()) return;
    place = ledger_.TakeRead(read.batch());
  }
  if (!place.has_value()) return;
  own_->Check(place->round, {{read.checksums().begin(), read.checksums().end()}, read.refusal()},
              [this, batch = read.batch(), place = *place](const absl::StatusOr<bool>& right) {
                OnChecked(batch, place, right);
              });
}

void LoadConsumer::OnChecked(uint64_t batch, ConsumerLedger::Place place, const absl::StatusOr<bool>& right) {
  if (!right.ok()) return Fail(right.status());
  std::vector<v1::Copy> copies;
  uint32_t released_below = 0;
  {
    MutexLock lock(mutex_);
    if (!ended_.ok()) return;
    if (*right) {
      ledger_.AcceptRead(batch);
    } else {
      copies = ledger_.RefuseRead(batch);
    }
    released_below = ledger_.ReleasedBelow(place.source);
  }
  if (*right) {
    own_->Release(options_.rank, released_below);
    return Answer();
  }
  own_->Await(options_.rank, place.round, released_below,
              [this, place, copies = std::move(copies)](const absl::StatusOr<RoundBuffer>& arrived) {
                if (!arrived.ok()) return Fail(arrived.status());
                if (const absl::Status inside = CheckSources(copies, arrived->bytes); !inside.ok()) return Fail(inside);
                HandOutMapped(place.source, place.round, {arrived->descriptor_id, arrived->bytes}, copies);
              });
}

// Asks for the next round only when this one has been handed out: what comes after an error is not asked for.
void LoadConsumer::OnRound(size_t source, uint32_t round, const SourceRound& arrived) {
  std::optional<std::vector<v1::Copy>> copies;
  {
    MutexLock lock(mutex_);
    if (!ended_.ok()) return;
    copies = ledger_.TakeRound(source, round);
  }
  if (!copies.has_value()) return;
  if (const absl::Status inside = CheckSources(*copies, arrived.bytes); !inside.ok()) return Fail(inside);
  if (sources_[source].mapped) {
    HandOutMapped(source, round, arrived, *std::move(copies));
  } else if (const absl::Status posted = PostFetches(source, round, *copies); !posted.ok()) {
    return Fail(posted);
  }
  AwaitNext(source);
}

void LoadConsumer::HandOutMapped(size_t source, uint32_t round, const SourceRound& arrived,
                                 std::vector<v1::Copy> copies) {
  v1::LoadBatch batch;
  Describe(sources_[source].rank, sources_[source].socket, arrived.descriptor_id, arrived.bytes,
           *batch.mutable_buffer());
  for (v1::Copy& copy : copies) *batch.add_copies() = std::move(copy);
  {
    MutexLock lock(mutex_);
    ledger_.AddMapped(source, round, std::move(batch));
    if (!local(source)) mapped_used_ = true;
  }
  Answer();
}

absl::Status LoadConsumer::PostFetches(size_t source, uint32_t round, const std::vector<v1::Copy>& copies) {
  uint64_t largest = 0;
  {
    MutexLock lock(mutex_);
    largest = ledger_.largest_window();
  }
  CAIRN_ASSIGN_OR_RETURN(std::vector<CopyWindow> parts, CutIntoWindows(copies, largest));
  {
    MutexLock lock(mutex_);
    ledger_.ExpectWindows(source, round, parts.size());
  }
  for (CopyWindow& part : parts) {
    fetch_queue_->Post([this, source, round, part = std::move(part)] {
      if (const absl::Status fetched = Fetch(source, round, part); !fetched.ok()) Fail(fetched);
    });
  }
  return absl::OkStatus();
}

absl::Status LoadConsumer::Fetch(size_t source, uint32_t round, const CopyWindow& part) {
  if (!AwaitRoom(part.bytes)) return absl::OkStatus();
  CAIRN_ASSIGN_OR_RETURN(Window window, FillWindow(source, round, part));
  // The bytes are here: their source need not keep them.
  if (HandOutFilled(source, round, part, std::move(window))) SendReleases({source});
  Answer();
  return absl::OkStatus();
}

bool LoadConsumer::AwaitRoom(uint64_t bytes) {
  MutexLock lock(mutex_);
  while (ended_.ok() && !ledger_.HasRoom(bytes)) changed_.Wait(mutex_);
  if (!ended_.ok()) return false;
  ledger_.TakeRoom(bytes);
  return true;
}

absl::StatusOr<LoadConsumer::Window> LoadConsumer::FillWindow(size_t source, uint32_t round, const CopyWindow& part) {
  Window window;
  CAIRN_ASSIGN_OR_RETURN(window.memory, pool_.Take(part.bytes));
  const auto fill = [&]() -> absl::Status {
    CAIRN_RETURN_IF_ERROR(sources_[source].fetcher->Fetch(round, part.copies, window.memory->data(), part.bytes));
    CAIRN_ASSIGN_OR_RETURN(window.id, options_.offers.offer(window.memory));
    return absl::OkStatus();
  };
  if (const absl::Status filled = fill(); !filled.ok()) {
    pool_.GiveBack(std::move(window.memory));
    return filled;
  }
  return window;
}

bool LoadConsumer::HandOutFilled(size_t source, uint32_t round, const CopyWindow& part, Window window) {
  v1::LoadBatch batch;
  Describe(options_.rank, options_.socket, window.id, window.memory->bytes(), *batch.mutable_buffer());
  uint64_t offset = 0;
  for (const v1::Copy& copy : part.copies) {
    *batch.add_copies() = PackedCopy(copy, offset);
    offset += *CopyBytes(copy);
  }
  MutexLock lock(mutex_);
  if (!ended_.ok()) {
    Discard(std::move(window));
    return false;
  }
  const ConsumerLedger::Filled filled = ledger_.AddFilled(source, round, part.bytes, std::move(batch));
  windows_.emplace(filled.batch, std::move(window));
  fetched_used_ = true;
  return filled.round_released;
}

void LoadConsumer::Discard(Window window) {
  if (window.released != nullptr) return window.released();
  options_.offers.withdraw(window.id);
  pool_.GiveBack(std::move(window.memory));
}

void LoadConsumer::TakeBack(uint64_t batch, std::vector<size_t>& sources) {
  if (const std::optional<size_t> source = ledger_.Release(batch)) sources.push_back(*source);
  if (auto window = windows_.extract(batch)) {
    Discard(std::move(window.mapped()));
    changed_.NotifyAll();  // there is room again
  }
}

void LoadConsumer::SendReleases(const std::vector<size_t>& sources) {
  for (const size_t source : sources) {
    uint32_t below = 0;
    {
      MutexLock lock(mutex_);
      below = ledger_.ReleasedBelow(source);
    }
    if (local(source)) {
      own_->Release(options_.rank, below);
    } else {
      sources_[source].fetcher->Release(below, [this](const absl::Status& error) { Fail(error); });
    }
  }
}

void LoadConsumer::Receive(const std::vector<uint64_t>& released, Done done) {
  std::vector<size_t> sources;
  {
    MutexLock lock(mutex_);
    for (const uint64_t batch : released) TakeBack(batch, sources);
    done.swap(waiting_);
  }
  if (absl::StatusOr<Received> nothing = Received(); done != nullptr) done(nothing);
  SendReleases(sources);
  Answer();
}

void LoadConsumer::ReleaseAll() {
  std::vector<size_t> sources;
  size_t unread = 0;
  {
    MutexLock lock(mutex_);
    if (!ended_.ok()) return;
    unread = ledger_.unread();
    for (const uint64_t batch : ledger_.DropReady()) TakeBack(batch, sources);
  }
  if (unread > 0) {
    return Fail(MakeError(Reason::kBadRequest,
                          absl::StrCat("the trainer of rank ", options_.rank, " ends a load of which it has not read ",
                                       unread, " batches of pieces")));
  }
  SendReleases(sources);
  if (options_.on_released) options_.on_released();
}

void LoadConsumer::Answer() {
  while (true) {
    Done done;
    absl::StatusOr<Received> answer;
    {
      MutexLock lock(mutex_);
      // Whoever answers now looks again afterwards. Until then nobody is told that the load is complete.
      if (answering_ || waiting_ == nullptr) return;
      if (ended_.ok()) {
        std::optional<Received> ready = ledger_.TakeReady();
        if (!ready.has_value()) return;
        answer = *std::move(ready);
      } else {
        answer = ended_;
      }
      done.swap(waiting_);
      answering_ = true;
    }
    const bool got = done(answer);
    MutexLock lock(mutex_);
    answering_ = false;
    if (!got && answer.ok()) ledger_.PutBack(std::move(answer->batches));
  }
}

void LoadConsumer::Fail(const absl::Status& error) {
  if (End(error)) options_.on_error(error);
}

bool LoadConsumer::End(const absl::Status& why) {
  {
    MutexLock lock(mutex_);
    if (!ended_.ok()) return false;
    ended_ = why;
    changed_.NotifyAll();
  }
  for (Source& source : sources_) {
    if (source.fetcher != nullptr) source.fetcher->Cancel();
  }
  Answer();
  return true;
}

void LoadConsumer::Stop(const absl::Status& why) {
  End(why);
  if (fetch_queue_ != nullptr) fetch_queue_->Stop();
  for (Source& source : sources_) {
    if (source.fetcher != nullptr) source.fetcher->Stop();  // its callbacks use this object
  }
  MutexLock lock(mutex_);
  for (auto& [batch, window] : windows_) Discard(std::move(window));
  windows_.clear();
}

TransportUse LoadConsumer::transport() {
  MutexLock lock(mutex_);
  TransportUse use;
  if (mapped_used_) use.transports.push_back(v1::TRANSPORT_SHARED_MEMORY);
  if (nccl_used_) use.transports.push_back(v1::TRANSPORT_NCCL);
  if (fetched_used_) {
    use.transports.push_back(v1::TRANSPORT_GRPC);
    use.nccl_refusal = nccl_refusal_;
  }
  return use;
}

}  // namespace cairn
