// Saves: see the diagram in session.h.
#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "agent/session/session.h"
#include "common/base/digest.h"
#include "common/base/time_proto.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/status/status_proto.h"
#include "common/storage/checkpoint_path.h"

namespace cairn {
namespace {

constexpr size_t kKeptEnded = 64;
// Failed saves that the coordinator has not given a verdict on. More come together only while it is away.
constexpr size_t kMaxFailed = 16;
// What the coordinator may take to name those that a rank has waited for. A client waits five seconds beyond its
// timeout.
constexpr absl::Duration kBlameGrace = absl::Seconds(3);
constexpr absl::Duration kDefaultStageTimeout = absl::Minutes(10);

absl::Status Aborted(int64_t step) {
  return MakeError(Reason::kSaveCancelled, absl::StrCat("the save of step ", step, " was aborted"));
}

// The ranks whose shards an image takes in, ascending.
std::vector<uint32_t> SourcesOf(const SaveImage& image) {
  std::set<uint32_t> ranks;
  for (const MovedIn& moved : image.moved_in) ranks.insert(moved.from_rank);
  return {ranks.begin(), ranks.end()};
}

bool Staged(v1::SaveState::Phase phase) {
  return phase == v1::SaveState::STAGED || phase == v1::SaveState::WRITING || phase == v1::SaveState::WRITTEN;
}

}  // namespace

Session::Save* Session::FindSave(int64_t step) {
  const auto save = saves_.find(step);
  return save == saves_.end() ? nullptr : &save->second;
}

Session::Save* Session::FindSaveById(uint64_t id) {
  for (auto& [step, save] : saves_) {
    if (save.id == id && id != 0) return &save;
  }
  return nullptr;
}

absl::StatusOr<v1::BeginSaveResponse> Session::BeginSave(const v1::BeginSaveRequest& request, absl::Time now) {
  CAIRN_RETURN_IF_ERROR(CheckAttached(request.trainer_incarnation()));
  const int64_t step = request.step();
  CAIRN_RETURN_IF_ERROR(CheckStep(step));
  v1::BeginSaveResponse response;
  const auto layout = layouts_.find(request.layout().digest());
  if (layout == layouts_.end()) {
    response.set_need_layout(true);
    return response;
  }
  const absl::Duration timeout = request.has_timeout() ? DurationOf(request.timeout()) : kDefaultStageTimeout;
  Save* save = FindSave(step);
  if (save == nullptr) {
    bool committed = false;
    for (EndedSave& ended : ended_) {
      if (ended.step != step) continue;
      committed = ended.error.ok();
      if (ended.trainer == request.trainer_incarnation() && std::exchange(ended.untold, false)) return ended.error;
    }
    CAIRN_RETURN_IF_ERROR(CheckRoom());
    save = &saves_[step];
    save->id = next_save_++;
    save->step = step;
    save->call = next_call_++;
    save->trainer = request.trainer_incarnation();
    save->ask_first = committed;
    save->layout = layout->second;
    save->allow_dropped_names = request.allow_dropped_names();
    save->stage_deadline = now + timeout;
    trainer_layout_ = layout->first;
    Changed();
    Advance();
  } else if (IsNextCall(*save, request)) {
    // The next call of this step: it begins when the one before has its verdict.
    if (!save->next_call || save->next_call->trainer != request.trainer_incarnation()) {
      save->next_call = {request.trainer_incarnation(), now + timeout};
    }
    if (now >= save->next_call->deadline) {
      save->next_call.reset();
      if (!link_trouble_.status().ok()) return link_trouble_.status();
      if (save->order.has_stalled()) return StatusFromProto(save->order.stalled());
      return MakeError(Reason::kSaveInProgress,
                       absl::StrCat("rank ", options_.rank, ": the attempt before to save step ", step,
                                    " has not ended within ", absl::FormatDuration(timeout)),
                       {{"step", absl::StrCat(step)}, {"rank", absl::StrCat(options_.rank)}});
    }
    SetPending(response);
    return response;
  }
  if (save->phase == v1::SaveState::STAGED) {
    // The trainer has another state of this step. Nothing reads the first one yet: the call takes its place.
    save->phase = v1::SaveState::STAGING;
    save->stage_deadline = now + timeout;
    save->replica_checksum.clear();
    Changed();
  }
  if (!save->error.ok()) {
    const bool waited = save->blame_deadline != absl::InfinitePast();
    const absl::Status blame = waited && save->order.action() == v1::SaveOrder::ABORT
                                   ? StatusFromProto(save->order.error())
                                   : absl::OkStatus();
    if (waited && blame.ok() && now < save->blame_deadline) {
      response.set_pending(true);
      return response;
    }
    save->told = true;
    return blame.ok() ? save->error : blame;
  }
  if (save->phase == v1::SaveState::BEGUN) {
    SetPending(response);
    return response;
  }
  response.set_save(save->id);
  const SaveImage& image = *save->staged;
  for (uint32_t item = 0; item < image.slab_offset.size(); ++item) {
    if (image.slab_offset[item] == SaveImage::kNotStaged) continue;
    auto* placement = response.add_placements();
    placement->set_item(item);
    placement->set_slab_offset(image.slab_offset[item]);
    placement->set_bytes(image.layout->items[item].bytes());
  }
  if (response.placements_size() > 0) {  // whoever copies nothing need not be able to write
    response.mutable_slab()->set_descriptor_id(slab_->descriptor_id);
    response.mutable_slab()->set_bytes(slab_->bytes);
    slab_use_.HandOut(save->trainer);
  }
  response.mutable_check_items()->Assign(save->checklist.must.begin(), save->checklist.must.end());
  response.mutable_may_check_items()->Assign(save->checklist.may.begin(), save->checklist.may.end());
  return response;
}

bool Session::IsNextCall(Save& save, const v1::BeginSaveRequest& request) {
  if (save.told || save.trainer != request.trainer_incarnation() || save.id == 0) return true;
  // What is written, or read by other ranks, must not change, and it is that which a commit holds.
  if (Staged(save.phase) && (save.phase != v1::SaveState::STAGED || save.write_attempt != 0)) return true;
  if (!save.error.ok() || save.layout->digest == request.layout().digest()) return false;
  // Without a word, by an interrupt: the trainer is told of the call that it makes now.
  Fail(save, MakeError(Reason::kSaveCancelled,
                       absl::StrCat("rank ", options_.rank, ": the trainer gave up saving step ", save.step,
                                    " and began again with another layout"),
                       {{"rank", absl::StrCat(options_.rank)}, {"step", absl::StrCat(save.step)}}));
  save.told = true;
  Advance();
  return true;
}

absl::Status Session::CommitStaging(const v1::CommitStagingRequest& request, absl::Time) {
  CAIRN_RETURN_IF_ERROR(CheckAttached(request.trainer_incarnation()));
  Save* save = FindSaveById(request.save());
  if (save == nullptr || save->trainer != request.trainer_incarnation()) {
    for (EndedSave& ended : ended_) {
      if (ended.id != request.save() || ended.trainer != request.trainer_incarnation()) continue;
      ended.untold = false;
      return ended.error;
    }
    return MakeError(Reason::kBadRequest,
                     absl::StrCat("rank ", options_.rank, ": no save ", request.save(), " was begun"));
  }
  if (!save->error.ok()) {
    save->told = true;
    return save->error;
  }
  if (Staged(save->phase)) return absl::OkStatus();
  if (save->phase != v1::SaveState::STAGING) {
    return MakeError(Reason::kBadRequest, absl::StrCat("save ", save->id, " of step ", save->step, " has no slab yet"));
  }
  const RankLayout& layout = *save->layout;
  if (static_cast<size_t>(request.object_sizes_size()) != layout.object_count()) {
    return MakeError(Reason::kBadRequest, absl::StrCat("lengths of ", request.object_sizes_size(),
                                                       " objects were given, the layout has ", layout.object_count()));
  }
  for (size_t i = 0; i < layout.object_count(); ++i) {
    const StoredItem& object = layout.items[layout.shard_count + i];
    const uint64_t bytes = request.object_sizes(static_cast<int>(i));
    if (bytes > object.bytes()) {
      return MakeError(Reason::kBadRequest,
                       absl::StrCat("object ", object.name, " has ", bytes, " bytes, its slot only ", object.bytes()),
                       {{"name", object.name}});
    }
  }
  CAIRN_RETURN_IF_ERROR(TakeReplicaChecksums(save->checklist, layout, request, save->replica_checksum));
  if (const int sampled = request.sampled_checksums_size(); sampled > 0) {
    next_sample_ = save->checklist.may[static_cast<size_t>(sampled) - 1] + 1;
  }
  save->object_bytes.assign(request.object_sizes().begin(), request.object_sizes().end());
  save->phase = v1::SaveState::STAGED;
  slab_use_.Staged(save->trainer);
  Changed();
  Advance();
  return absl::OkStatus();
}

absl::StatusOr<v1::WaitSaveResponse> Session::WaitSave(const v1::WaitSaveRequest& request) {
  CAIRN_RETURN_IF_ERROR(CheckAttached(request.trainer_incarnation()));
  v1::WaitSaveResponse response;
  const Save* save = request.save() != 0 ? FindSaveById(request.save()) : FindSave(request.step());
  if (save != nullptr && save->id != 0) {
    SetPending(response);
    response.set_attempt(save->attempt);
    if (!response.has_stalled() && save->order.has_stalled()) *response.mutable_stalled() = save->order.stalled();
    return response;
  }
  for (auto ended = ended_.rbegin(); ended != ended_.rend(); ++ended) {
    if (ended->step != request.step() || (request.save() != 0 && ended->id != request.save())) continue;
    const bool own = ended->trainer == request.trainer_incarnation();
    // That a step is committed concerns everybody; why a save of it was aborted, only who called that save.
    if (!own && !ended->error.ok()) continue;
    if (own) ended->untold = false;
    *response.mutable_checkpoint() = ended->checkpoint;
    return response;
  }
  if (request.attempt() != 0 && CheckStep(request.step()).ok()) return AskFor(request);
  return MakeError(Reason::kNotCommitted,
                   absl::StrCat("rank ", options_.rank, ": this agent knows of no save of step ", request.step()),
                   {{"step", absl::StrCat(request.step())}, {"rank", absl::StrCat(options_.rank)}});
}

v1::WaitSaveResponse Session::AskFor(const v1::WaitSaveRequest& request) {
  v1::WaitSaveResponse response;
  const AskedSaves::Question question{request.trainer_incarnation(), request.step(), request.attempt()};
  if (const auto verdict = asked_.Take(question); verdict.has_value()) {
    absl::Status error;
    if (verdict->action() == v1::SaveOrder::ABORTED) {
      error = StatusFromProto(verdict->error());
      if (error.ok()) error = Aborted(request.step());
    }
    *response.mutable_checkpoint() = CheckpointOf(*verdict, error);
    return response;
  }
  if (asked_.Ask(question, next_call_)) {
    ++next_call_;
    Changed();
  }
  SetPending(response);
  response.set_attempt(request.attempt());
  const v1::SaveOrder* last = asked_.Last(question);
  if (!response.has_stalled() && last != nullptr && last->has_stalled()) *response.mutable_stalled() = last->stalled();
  return response;
}

absl::Status Session::CheckRoom() const {
  const auto failed = std::count_if(saves_.begin(), saves_.end(),
                                    [](const auto& entry) { return entry.second.phase == v1::SaveState::FAILED; });
  if (static_cast<size_t>(failed) < kMaxFailed) return absl::OkStatus();
  const std::string why = absl::StrCat(failed, " saves have failed that the coordinator has yet to hear of");
  if (!link_trouble_.status().ok()) return Annotate(link_trouble_.status(), why);
  return MakeError(Reason::kSaveInProgress, absl::StrCat("rank ", options_.rank, ": ", why),
                   {{"rank", absl::StrCat(options_.rank)}});
}

absl::Status Session::CancelSave(const v1::CancelSaveRequest& request, absl::Time) {
  CAIRN_RETURN_IF_ERROR(CheckAttached(request.trainer_incarnation()));
  slab_use_.GaveUp(request.trainer_incarnation());
  Save* save = FindSaveById(request.save());
  if (save == nullptr || save->trainer != request.trainer_incarnation() ||
      (save->phase != v1::SaveState::BEGUN && save->phase != v1::SaveState::STAGING)) {
    return absl::OkStatus();
  }
  absl::Status error = StatusFromProto(request.error());
  if (error.ok() || !ReasonOf(error)) {
    const std::string why = error.ok() ? "" : absl::StrCat(": ", error.message());
    error = MakeError(Reason::kSaveCancelled,
                      absl::StrCat("rank ", options_.rank, ": the trainer gave up saving step ", save->step, why),
                      {{"rank", absl::StrCat(options_.rank)}, {"step", absl::StrCat(save->step)}});
  }
  Fail(*save, std::move(error));
  save->told = true;
  Advance();
  return absl::OkStatus();
}

void Session::Fail(Save& save, absl::Status error) {
  if (save.error.ok()) save.error = std::move(error);
  if (save.phase != v1::SaveState::STOPPED) save.phase = v1::SaveState::FAILED;
  Changed();
}

absl::Status Session::StalledStorage(const Save& waiting) const {
  if (waiting.order.has_stalled()) return StatusFromProto(waiting.order.stalled());
  if (!SlabIsHeld()) return absl::OkStatus();
  for (const auto& [step, save] : saves_) {
    if (save.order.has_stalled()) return StatusFromProto(save.order.stalled());
  }
  return absl::OkStatus();
}

void Session::OnTick(absl::Time now) {
  bool late = false;
  for (auto& [step, save] : saves_) {
    if (save.phase != v1::SaveState::BEGUN && save.phase != v1::SaveState::STAGING) continue;
    if (now < save.stage_deadline) continue;
    late = true;
    const bool staging = save.phase == v1::SaveState::STAGING;
    ErrorMetadata metadata = {{"step", absl::StrCat(step)},
                              {"rank", absl::StrCat(options_.rank)},
                              {"phase", staging ? "staging" : "planning"}};
    // Only who does not stage is late itself; who waits for a plan does not know for whom.
    if (staging) metadata.emplace_back("ranks", absl::StrCat(options_.rank));
    if (staging) {
      Fail(save, MakeError(Reason::kRankLate,
                           absl::StrCat("rank ", options_.rank, ": the trainer has not staged step ", step,
                                        " within the save's timeout"),
                           metadata));
    } else if (const absl::Status stalled = link_trouble_.status().ok() ? StalledStorage(save) : link_trouble_.status();
               !stalled.ok()) {
      Fail(save, Annotate(stalled,
                          absl::StrCat("rank ", options_.rank, ": step ", step,
                                       " could not be staged within the save's timeout"),
                          metadata));
    } else if (SlabIsHeld()) {
      Fail(save, MakeError(Reason::kSaveInProgress,
                           absl::StrCat(
                               "rank ", options_.rank,
                               ": the slab was held by the save of another step for the whole timeout of step ", step),
                           metadata));
    } else if (!registered_) {
      Fail(save,
           MakeError(Reason::kCoordinatorUnreachable,
                     absl::StrCat("rank ", options_.rank,
                                  ": the coordinator was not heard of within the timeout of the save of step ", step),
                     metadata));
    } else {
      save.blame_deadline = now + kBlameGrace;
      Fail(save,
           MakeError(Reason::kRankLate,
                     absl::StrCat("rank ", options_.rank, " waited for other ranks for the whole timeout of its save ",
                                  "of step ", step, ": they have not called save or prepare, so there is no plan"),
                     metadata));
    }
  }
  if (late) Advance();
}

void Session::ApplySave(const v1::SaveOrder& order, absl::Time) {
  Save* save = FindSave(order.step());
  if (save == nullptr) {
    // An order from before this process: nothing here touches that attempt.
    if (order.action() != v1::SaveOrder::ABORT) return;
    Save& stub = saves_[order.step()];
    stub.step = order.step();
    stub.attempt = order.attempt();
    stub.phase = v1::SaveState::STOPPED;
    stub.error = StatusFromProto(order.error());
    Changed();
    return;
  }
  // Begun after the request that this answers was sent.
  const auto told = told_saves_.find(order.step());
  if (told == told_saves_.end() || told->second != save->id) return;
  if (order.call() != 0 && order.call() != save->call && save->id != 0) return;
  if (!order.request_id().empty()) save->request_id = order.request_id();
  switch (order.action()) {
    case v1::SaveOrder::COMMITTED:
    case v1::SaveOrder::ABORTED:
      EndSave(*save, order);
      return;
    case v1::SaveOrder::ABORT: {
      if (save->order.action() == v1::SaveOrder::ABORT && save->attempt == order.attempt()) return;
      save->order = order;
      save->attempt = order.attempt();
      if (save->error.ok()) save->error = StatusFromProto(order.error());
      if (save->error.ok()) save->error = Aborted(save->step);
      if (writer_ == save->id && save->id != 0) {
        if (!std::exchange(writer_stopping_, true)) Do(action::StopWrite{save->id});
      } else {
        save->phase = v1::SaveState::STOPPED;
      }
      Changed();
      return;
    }
    case v1::SaveOrder::WAIT:
    case v1::SaveOrder::STAGE:
    case v1::SaveOrder::WRITE:
      if (save->attempt != order.attempt()) Changed();
      save->order = order;
      // An order that only waits may name the attempt without its nonce.
      if (order.attempt_nonce() != 0 || order.attempt() != save->attempt) save->attempt_nonce = order.attempt_nonce();
      save->attempt = order.attempt();
      return;  // Advance follows
    default:
      return;
  }
}

v1::Checkpoint Session::CheckpointOf(const v1::SaveOrder& verdict, const absl::Status& error) const {
  v1::Checkpoint checkpoint;
  checkpoint.set_job(options_.job);
  checkpoint.set_step(verdict.step());
  checkpoint.set_state(error.ok() ? v1::Checkpoint::COMMITTED : v1::Checkpoint::ABORTED);
  checkpoint.set_attempt(verdict.attempt());
  checkpoint.set_bytes(verdict.bytes());
  checkpoint.set_world_size(verdict.world_size() != 0 ? verdict.world_size() : options_.world_size);
  checkpoint.set_data_directory(verdict.directory());
  checkpoint.set_request_id(verdict.request_id());
  checkpoint.set_coordinator_epoch(coordinator_epoch_);
  if (verdict.has_commit_time()) *checkpoint.mutable_commit_time() = verdict.commit_time();
  if (!error.ok()) *checkpoint.mutable_error() = StatusToProto(error);
  if (verdict.has_warning()) *checkpoint.mutable_warning() = verdict.warning();
  return checkpoint;
}

void Session::EndSave(Save& save, const v1::SaveOrder& verdict) {
  const bool committed = verdict.action() == v1::SaveOrder::COMMITTED;
  EndedSave ended;
  ended.id = save.id;
  ended.step = save.step;
  ended.trainer = save.trainer;
  if (!committed) {
    ended.error = StatusFromProto(verdict.error());
    if (ended.error.ok()) ended.error = save.error;
    if (ended.error.ok()) ended.error = Aborted(save.step);
    ended.untold = !save.told && !Staged(save.phase) && save.id != 0;
  }
  ended.checkpoint = CheckpointOf(verdict, ended.error);
  if (verdict.attempt() == 0) ended.checkpoint.set_attempt(save.attempt);
  ended.checkpoint.set_request_id(save.request_id);
  if (writer_ == save.id && save.id != 0 && !std::exchange(writer_stopping_, true)) Do(action::StopWrite{save.id});
  if (save.id != 0) ended_.push_back(std::move(ended));
  if (ended_.size() > kKeptEnded) ended_.pop_front();
  if (save.write_attempt != 0 && !save.target->moved_out.empty()) Do(action::EndLending{save.id});
  saves_.erase(save.step);
  Changed();
}

void Session::AdvanceSave(Save& save) {
  const bool ordered = save.order.action() == v1::SaveOrder::STAGE || save.order.action() == v1::SaveOrder::WRITE;
  if (save.phase == v1::SaveState::BEGUN && save.id != 0) {
    SaveImagePtr image;
    if (ordered) {
      auto wanted = WantImage(save.order.plan_digest(), save.layout);
      if (!wanted.ok()) return Fail(save, wanted.status());
      image = *std::move(wanted);
    } else if (!save.ask_first && cached_ && cached_->layout->digest == save.layout->digest &&
               (current_plan_digest_.empty() || current_plan_digest_ == cached_->plan_digest)) {
      // Nothing here has changed, so the trainer need not wait for the other ranks: the last plan is taken until the
      // coordinator orders another.
      image = cached_;
    }
    if (image == nullptr) return;
    const auto ready = WantSlab(image->slab_bytes, save.trainer);
    if (!ready.ok()) return Fail(save, ready.status());
    if (!*ready) return;
    save.staged = image;
    save.target = image;
    cached_ = image;
    save.checklist =
        MakeReplicaChecklist(*image, ordered ? save.order.check_replicas() : current_plan_checks_replicas_,
                             ordered ? save.order.sample_replicas() : current_plan_samples_replicas_, next_sample_);
    save.phase = v1::SaveState::STAGING;
    Changed();
    return;
  }
  if (save.phase != v1::SaveState::STAGING && !Staged(save.phase)) return;
  if (!ordered) return;
  if (save.order.plan_digest() != save.target->plan_digest) {
    // Another rank's layout changed. The image is rebuilt while it is written: each item is taken from where the
    // trainer put it.
    auto wanted = WantImage(save.order.plan_digest(), save.layout);
    if (!wanted.ok()) return Fail(save, wanted.status());
    if (*wanted == nullptr) return;
    cached_ = *wanted;  // what the next save follows, also if this one cannot
    if (const auto item = FirstUnstaged(*save.staged, **wanted)) {
      const std::string& name = save.layout->items[*item].name;
      return Fail(save, MakeError(Reason::kLayoutChanged,
                                  absl::StrCat("rank ", options_.rank, ": by the new plan it writes ", name,
                                               ", which was not staged under the one before; save again"),
                                  {{"rank", absl::StrCat(options_.rank)}, {"tensor", name}}));
    }
    save.target = *std::move(wanted);
    Changed();
  }
  if (save.order.action() != v1::SaveOrder::WRITE) return;
  if (save.order.attempt() == save.write_attempt && save.order.attempt_nonce() == save.write_nonce) return;
  if (save.phase == v1::SaveState::WRITING) {
    // Another attempt: the files of this one are given up.
    if (writer_ == save.id && !std::exchange(writer_stopping_, true)) Do(action::StopWrite{save.id});
    return;
  }
  // They are asked for while the trainer still stages.
  std::optional<PeerMap> peers = WantPeers(SourcesOf(*save.target));
  if (save.phase == v1::SaveState::STAGING || writer_ || !peers.has_value()) return;
  save.phase = v1::SaveState::WRITING;
  save.write_attempt = save.order.attempt();
  save.write_nonce = save.order.attempt_nonce();
  save.bytes_done = 0;
  save.result.Clear();
  writer_ = save.id;
  writer_stopping_ = false;
  if (!save.target->moved_out.empty()) slab_use_.Lend();
  save.waiting_for.clear();
  Do(action::StartWrite{save.id, save.step, save.write_attempt, save.order.directory(), save.staged, save.target,
                        save.object_bytes, save.order, *std::move(peers)});
  Changed();
}

void Session::OnWriteProgress(uint64_t id, uint64_t bytes_done, std::vector<uint32_t> waiting_for) {
  Save* save = FindSaveById(id);
  if (save == nullptr) return;
  save->bytes_done = bytes_done;
  if (save->waiting_for == waiting_for) return;
  save->waiting_for = std::move(waiting_for);
  Changed();
}

void Session::OnWriteEnded(uint64_t id, absl::StatusOr<v1::WriteResult> result) {
  if (writer_ != id) return;
  writer_.reset();
  const bool stopping = std::exchange(writer_stopping_, false);
  // A verdict came while it was written: what the writer lent meanwhile is nobody's any more.
  if (FindSaveById(id) == nullptr) Do(action::EndLending{id});
  if (Save* save = FindSaveById(id); save != nullptr && save->phase == v1::SaveState::WRITING) {
    save->waiting_for.clear();
    if (save->order.action() == v1::SaveOrder::ABORT) {
      save->phase = v1::SaveState::STOPPED;
    } else if (stopping) {
      save->phase = v1::SaveState::STAGED;  // for the next attempt
    } else if (result.ok()) {
      save->phase = v1::SaveState::WRITTEN;
      save->bytes_done = save->target->file_bytes;
      save->result = *std::move(result);
    } else {
      Fail(*save, Annotate(result.status(), absl::StrCat("rank ", options_.rank),
                           {{"rank", absl::StrCat(options_.rank)},
                            {"ranks", absl::StrCat(options_.rank)},
                            {"step", absl::StrCat(save->step)},
                            {"phase", "writing"}}));
    }
  }
  Advance();
  Changed();
}

bool Session::HoldsStagedSaves() const {
  return writer_ ||
         std::any_of(saves_.begin(), saves_.end(), [](const auto& entry) { return Staged(entry.second.phase); });
}

v1::SaveState Session::StateOf(const Save& save) const {
  v1::SaveState state;
  state.set_step(save.step);
  state.set_phase(save.phase);
  state.set_attempt(save.attempt);
  state.set_attempt_nonce(save.attempt_nonce);
  if (save.layout) state.set_layout_digest(save.layout->digest);
  if (save.target) {
    state.set_plan_digest(save.target->plan_digest);
    state.set_bytes_total(save.target->file_bytes);
  }
  state.set_bytes_done(save.bytes_done);
  if (!save.error.ok()) *state.mutable_error() = StatusToProto(save.error);
  if (save.phase == v1::SaveState::WRITTEN) {
    *state.mutable_result() = save.result;
  }
  if (save.phase == v1::SaveState::WRITING) {
    state.mutable_awaited_ranks()->Assign(save.waiting_for.begin(), save.waiting_for.end());
  }
  for (const v1::ReplicaChecksum& checksum : save.replica_checksum) *state.add_replica_checksums() = checksum;
  // By another plan than that of the checks it may hold more without writing it.
  state.set_all_replicas_checked(Staged(save.phase) && save.checklist.all &&
                                 std::includes(save.staged->replica.begin(), save.staged->replica.end(),
                                               save.target->replica.begin(), save.target->replica.end()));
  state.set_allow_dropped_names(save.allow_dropped_names);
  state.set_call(save.call);
  state.set_trainer_incarnation(save.trainer);
  state.set_request_id(save.request_id);
  return state;
}

}  // namespace cairn
