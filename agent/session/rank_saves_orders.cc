// Takes the coordinator's orders for the saves, the writer's reports and the clock, and does what follows from them.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/session/rank_saves.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"

namespace cairn {
namespace {

// The coordinator has this long to name those that a rank has waited for. A client waits five seconds beyond its
// timeout, so it still hears the names.
constexpr absl::Duration kNamingTime = absl::Seconds(3);

}  // namespace

void RankSaves::AddTo(v1::AgentState& state) {
  told_.clear();
  // In the order of the calls, because a save commits after those that began before it, whatever their steps are: a
  // coordinator that has restarted begins them in this order.
  std::vector<const RankSave*> saves;
  for (const auto& [step, save] : saves_) {
    saves.push_back(&save);
    told_[step] = save.id();
  }
  std::stable_sort(saves.begin(), saves.end(),
                   [](const RankSave* a, const RankSave* b) { return a->call() < b->call(); });
  for (const RankSave* save : saves) *state.add_saves() = save->State();
  asked_.AddTo(state);
}

void RankSaves::Obey(const google::protobuf::RepeatedPtrField<v1::SaveOrder>& orders) {
  for (const v1::SaveOrder& order : orders) {
    if (!asked_.Apply(order)) Apply(order);
  }
  // A save that was never begun here and that the coordinator no longer speaks of needs no answer.
  std::erase_if(saves_, [&](const auto& entry) {
    return entry.second.id() == 0 &&
           std::none_of(orders.begin(), orders.end(), [&](const auto& order) { return order.step() == entry.first; });
  });
}

void RankSaves::Apply(const v1::SaveOrder& order) {
  RankSave* save = Find(order.step());
  if (save == nullptr) {
    // An order from before this process: nothing here touches that attempt.
    if (order.phase() != v1::Phase::ABORTING) return;
    saves_.emplace(order.step(), RankSave(order));
    context_.Changed();
    return;
  }
  // Begun after the request that this answers was sent.
  const auto told = told_.find(order.step());
  if (told == told_.end() || told->second != save->id()) return;
  if (order.call() != 0 && order.call() != save->call() && save->id() != 0) return;
  save->TakeRequestId(order);
  switch (order.phase()) {
    case v1::Phase::COMMITTED:
    case v1::Phase::ABORTED:
      End(*save, order);
      return;
    case v1::Phase::ABORTING:
      Abort(*save, order);
      return;
    case v1::Phase::WAITING:
    case v1::Phase::STAGING:
    case v1::Phase::WRITING:
      if (save->Obey(order)) context_.Changed();
      return;  // Advance follows
    default:
      return;
  }
}

void RankSaves::Abort(RankSave& save, const v1::SaveOrder& order) {
  if (save.OrderedToAbort() && save.attempt() == order.attempt()) return;
  const bool writing = writer_ == save.id() && save.id() != 0;
  save.Abort(order, writing);
  if (writing) StopWriter(save);
  context_.Changed();
}

v1::Checkpoint RankSaves::CheckpointOf(const v1::SaveOrder& outcome, const absl::Status& error) const {
  v1::Checkpoint checkpoint;
  checkpoint.set_job(context_.options.job);
  checkpoint.set_step(outcome.step());
  checkpoint.set_state(error.ok() ? v1::Phase::COMMITTED : v1::Phase::ABORTED);
  checkpoint.set_attempt(outcome.attempt());
  checkpoint.set_bytes(outcome.bytes());
  checkpoint.set_world_size(outcome.world_size() != 0 ? outcome.world_size() : context_.options.world_size);
  checkpoint.set_data_directory(outcome.directory());
  checkpoint.set_request_id(outcome.request_id());
  checkpoint.set_coordinator_epoch(context_.coordinator_epoch);
  if (outcome.has_commit_time()) *checkpoint.mutable_commit_time() = outcome.commit_time();
  if (!error.ok()) *checkpoint.mutable_error() = StatusToProto(error);
  *checkpoint.mutable_warnings() = outcome.warnings();
  return checkpoint;
}

void RankSaves::End(RankSave& save, const v1::SaveOrder& outcome) {
  EndedSaves::Ended ended;
  ended.id = save.id();
  ended.step = save.step();
  ended.trainer = save.trainer();
  if (outcome.phase() != v1::Phase::COMMITTED) {
    ended.error = StatusFromProto(outcome.error());
    if (ended.error.ok()) ended.error = save.error();
    if (ended.error.ok()) ended.error = RankSave::Aborted(save.step());
    ended.untold = !save.told() && !save.Staged() && save.id() != 0;
  }
  ended.checkpoint = CheckpointOf(outcome, ended.error);
  if (outcome.attempt() == 0) ended.checkpoint.set_attempt(save.attempt());
  if (ended.error.ok()) KeepSlab(save, outcome);
  ended.checkpoint.set_request_id(save.request_id());
  StopWriter(save);
  if (save.id() != 0) ended_.Add(std::move(ended));
  if (save.write_attempt() != 0 && !save.target()->moved_out.empty()) context_.Do(action::EndLending{save.id()});
  saves_.erase(save.step());
  context_.Changed();
}

// A save may be written by another plan than it was staged by, item by item. The slab then holds another form than the
// files, and is no image of them.
void RankSaves::KeepSlab(const RankSave& save, const v1::SaveOrder& outcome) {
  if (save.phase() != v1::Phase::WRITTEN || save.staged() != save.target()) return;
  if (outcome.attempt() != 0 && outcome.attempt() != save.write_attempt()) return;
  slab_.Keep({save.step(), save.write_attempt(), save.target(), save.result()});
}

void RankSaves::StopWriter(const RankSave& save) {
  if (save.id() == 0 || writer_ != save.id() || std::exchange(writer_stopping_, true)) return;
  context_.Do(action::StopWrite{save.id()});
}

void RankSaves::Advance() {
  for (auto& [step, save] : saves_) Advance(save);
}

void RankSaves::Advance(RankSave& save) {
  if (save.phase() == v1::Phase::PLANNING && save.id() != 0) return OpenSlab(save);
  if ((save.phase() != v1::Phase::STAGING && !save.Staged()) || !save.error().ok()) return;
  if (!save.OrderedToGoOn() || !FollowPlan(save)) return;
  if (save.order().phase() != v1::Phase::WRITING) return;
  if (save.WrittenAsOrdered()) return DecideMoves(save);
  if (save.writes()) return StopWriter(save);  // another attempt: its files are given up
  Write(save);
}

void RankSaves::OpenSlab(RankSave& save) {
  const bool ordered = save.OrderedToGoOn();
  const RankPlans::Current& current = plans_.current();
  const SaveImagePtr& newest = plans_.newest();
  SaveImagePtr image;
  if (ordered) {
    auto wanted = plans_.WantImage(save.order().plan_digest(), save.layout());
    if (!wanted.ok()) return Fail(save, wanted.status());
    image = *std::move(wanted);
  } else if (!save.ask_first() && newest && newest->layout->digest == save.layout()->digest &&
             (current.digest.empty() || current.digest == newest->plan_digest)) {
    // Nothing here has changed, so the trainer need not wait for the other ranks: the last plan is taken until the
    // coordinator orders another.
    image = newest;
  }
  if (image == nullptr) return;
  const auto ready = slab_.Want(image->slab_bytes, save.trainer(), HoldsSlab());
  if (!ready.ok()) return Fail(save, ready.status());
  if (!*ready || !slab_.Open()) return;
  plans_.SetNewest(image);
  ReplicaChecklist checklist =
      MakeReplicaChecklist(*image, ordered ? save.order().check_replicas() : current.check_replicas,
                           ordered ? save.order().sample_replicas() : current.sample_replicas, next_sample_);
  // Nobody waits to hear of it: the next report is soon enough.
  save.Open(std::move(image), std::move(checklist));
}

bool RankSaves::FollowPlan(RankSave& save) {
  if (save.order().plan_digest() == save.target()->plan_digest) return true;
  // Another rank's layout changed. The image is rebuilt while it is written: each item is taken from where the trainer
  // put it.
  auto wanted = plans_.WantImage(save.order().plan_digest(), save.layout());
  if (!wanted.ok()) {
    Fail(save, wanted.status());
    return false;
  }
  if (*wanted == nullptr) return false;
  plans_.SetNewest(*wanted);  // what the next save follows, also if this one cannot
  if (const auto item = FirstUnstaged(*save.staged(), **wanted)) {
    const std::string& name = save.layout()->items[*item].name;
    const uint32_t rank = context_.options.rank;
    Fail(save, MakeError(Reason::kLayoutChanged,
                         absl::StrCat("rank ", rank, ": by the new plan it writes ", name,
                                      ", which was not staged under the one before; save again"),
                         {{"rank", absl::StrCat(rank)}, {"tensor", name}}));
    return false;
  }
  save.Retarget(*std::move(wanted));
  if (save.writes() && save.phase() == v1::Phase::STAGING) StopWriter(save);
  context_.Changed();
  return true;
}

void RankSaves::Write(RankSave& save) {
  // The peers are asked for while the trainer still stages.
  std::optional<PeerMap> peers = plans_.WantPeers(save.Peers());
  if (save.phase() == v1::Phase::STAGING && !save.MayBeWrittenEarly()) return;
  if (writer_ || !peers.has_value()) return;
  save.StartWriting();
  writer_ = save.id();
  writer_stopping_ = false;
  if (!save.target()->moved_out.empty()) slab_.use().Lend();
  const uint64_t staging = save.phase() == v1::Phase::STAGING ? save.staging() : 0;
  context_.Do(action::StartWrite{save.id(), save.step(), save.write_attempt(), save.order().directory(), save.staged(),
                                 save.target(), staging, save.object_bytes(), save.order(), *std::move(peers)});
}

void RankSaves::DecideMoves(RankSave& save) {
  const bool undecided = save.way() == v1::Exchange::UNDECIDED || save.way() == v1::Exchange::GROUP;
  if (save.phase() != v1::Phase::WRITING || !undecided) return;
  v1::Exchange exchange = save.order().exchange();
  if (!save.order().has_exchange()) {  // of a coordinator that has restarted since, and wants no NCCL
    exchange.set_way(v1::Exchange::HOST);
    exchange.set_reason("the coordinator has restarted");
  }
  if (exchange.way() == save.way()) return;
  if (exchange.way() != v1::Exchange::HOST && exchange.way() != v1::Exchange::GROUP) return;
  save.TellWay(exchange.way());
  context_.Do(action::DecideMoves{save.id(), std::move(exchange)});
}

void RankSaves::OnWriteProgress(uint64_t id, uint64_t bytes_done, std::vector<uint32_t> waiting_for) {
  RankSave* save = FindById(id);
  if (save != nullptr && save->TakeProgress(bytes_done, std::move(waiting_for))) context_.Changed();
}

void RankSaves::OnWriteEnded(uint64_t id, absl::StatusOr<v1::WriteResult> result) {
  if (writer_ != id) return;
  writer_.reset();
  const bool stopping = std::exchange(writer_stopping_, false);
  RankSave* save = FindById(id);
  // An outcome came while it was written: what the writer lent meanwhile is nobody's any more.
  if (save == nullptr) context_.Do(action::EndLending{id});
  if (save != nullptr && save->writes()) {
    if (stopping || save->OrderedToAbort()) {
      save->StopWriting();
    } else if (!result.ok()) {
      save->Fail(WriteError(result.status(), save->step()));
      save->StopWriting();
    } else if (const absl::Status torn = save->EndWriting(*std::move(result)); !torn.ok()) {
      const std::string rank = absl::StrCat(context_.options.rank);
      save->Fail(Annotate(torn, absl::StrCat("rank ", rank),
                          {{"rank", rank}, {"ranks", rank}, {"step", absl::StrCat(save->step())}}));
    }
  }
  Advance();
  context_.Changed();
}

absl::Status RankSaves::WriteError(const absl::Status& error, int64_t step) const {
  const std::string rank = absl::StrCat(context_.options.rank);
  const absl::Status annotated = Annotate(error, absl::StrCat("rank ", rank),
                                          {{"rank", rank}, {"step", absl::StrCat(step)}, {"phase", "writing"}});
  // A rank that could not get another rank's shards is not at fault itself.
  const auto metadata = MetadataOf(error);
  const auto source = metadata.find("source_rank");
  return WithMetadata(annotated, {{"ranks", source == metadata.end() ? rank : source->second}});
}

absl::Status RankSaves::StalledStorage(const RankSave& waiting) const {
  if (waiting.order().has_stalled()) return StatusFromProto(waiting.order().stalled());
  if (!HoldsSlab()) return absl::OkStatus();
  for (const auto& [step, save] : saves_) {
    if (save.order().has_stalled()) return StatusFromProto(save.order().stalled());
  }
  return absl::OkStatus();
}

void RankSaves::OnTick(absl::Time now) {
  bool late = false;
  for (auto& [step, save] : saves_) {
    if (save.phase() != v1::Phase::PLANNING && save.phase() != v1::Phase::STAGING) continue;
    if (now < save.stage_deadline() || !save.error().ok()) continue;
    late = true;
    Fail(save, WhyLate(save, now));
  }
  if (late) Advance();
}

absl::Status RankSaves::LateBecauseOf(const absl::Status& stalled, const RankSave& save) const {
  const uint32_t rank = context_.options.rank;
  return Annotate(stalled,
                  absl::StrCat("rank ", rank, ": step ", save.step(), " could not be staged within the save's timeout"),
                  {{"step", absl::StrCat(save.step())}, {"rank", absl::StrCat(rank)}, {"phase", "planning"}});
}

absl::Status RankSaves::WhyLate(RankSave& save, absl::Time now) const {
  const std::string rank = absl::StrCat("rank ", context_.options.rank);
  const bool staging = save.phase() == v1::Phase::STAGING;
  ErrorMetadata metadata = {{"step", absl::StrCat(save.step())},
                            {"rank", absl::StrCat(context_.options.rank)},
                            {"phase", staging ? "staging" : "planning"}};
  if (staging) {
    // Only who does not stage is late itself; who waits for a plan does not know for whom.
    metadata.emplace_back("ranks", absl::StrCat(context_.options.rank));
    return MakeError(
        Reason::kRankLate,
        absl::StrCat(rank, ": the trainer has not staged step ", save.step(), " within the save's timeout"), metadata);
  }
  const absl::Status& trouble = context_.trouble.status();
  if (const absl::Status stalled = trouble.ok() ? StalledStorage(save) : trouble; !stalled.ok()) {
    return LateBecauseOf(stalled, save);
  }
  if (HoldsSlab()) {
    return MakeError(Reason::kSaveInProgress,
                     absl::StrCat(rank, ": the staging buffer was held by ", SlabHolders(),
                                  " for the whole timeout of step ", save.step()),
                     metadata);
  }
  if (!context_.registered) {
    return MakeError(
        Reason::kCoordinatorUnreachable,
        absl::StrCat(rank, ": the coordinator was not heard of within the timeout of the save of step ", save.step()),
        metadata);
  }
  save.AwaitNames(now + kNamingTime);
  return MakeError(Reason::kRankLate,
                   absl::StrCat(rank, " waited for other ranks for the whole timeout of its save of step ", save.step(),
                                ": they have not called save or prepare, so there is no plan"),
                   metadata);
}

}  // namespace cairn
