// Answers what the trainer asks of its saves.
#include "agent/session/rank_saves.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/duration_text.h"
#include "common/base/time_proto.h"
#include "common/format/checkpoint_path.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/status/status_proto.h"

namespace cairn {
namespace {

// Failed saves that the coordinator has not given an outcome on. More come together only while it is away.
constexpr size_t kMaxFailed = 16;
constexpr absl::Duration kDefaultStageTimeout = absl::Minutes(10);

absl::Duration TimeoutOf(const v1::BeginSaveRequest& request) {
  return request.has_timeout() ? DurationOf(request.timeout()) : kDefaultStageTimeout;
}

}  // namespace

RankSave* RankSaves::Find(int64_t step) {
  const auto save = saves_.find(step);
  return save == saves_.end() ? nullptr : &save->second;
}

RankSave* RankSaves::FindById(uint64_t id) {
  for (auto& [step, save] : saves_) {
    if (save.id() == id && id != 0) return &save;
  }
  return nullptr;
}

absl::StatusOr<v1::BeginSaveResponse> RankSaves::Begin(const v1::BeginSaveRequest& request, const RankLayoutPtr& layout,
                                                       absl::Time now) {
  const int64_t step = request.step();
  v1::BeginSaveResponse response;
  RankSave* save = Find(step);
  if (save == nullptr) {
    if (const auto untold = ended_.TakeUntold(step, request.trainer_incarnation()); untold.has_value()) return *untold;
    CAIRN_RETURN_IF_ERROR(CheckRoom());
    const RankSave::Begin begin = {next_save_++, next_call_++, now + TimeoutOf(request), ended_.Committed(step)};
    save = &saves_.emplace(step, RankSave(begin, request, layout)).first->second;
    ++begun_;
    context_.Changed();
    Advance();
  } else if (IsNextCall(*save, request)) {
    CAIRN_RETURN_IF_ERROR(AwaitTurn(*save, request, now));
    context_.SetPending(response);
    return response;
  }
  if (save->phase() == v1::Phase::STAGED) {
    // The trainer has another state of this step. Nothing reads the first one yet: the call takes its place.
    save->StageAgain(now + TimeoutOf(request));
    context_.Changed();
  }
  if (!save->error().ok()) {
    if (absl::Status error = ErrorToTell(*save, now); !error.ok()) {
      save->Told();
      return error;
    }
    response.set_pending(true);
    return response;
  }
  if (save->phase() == v1::Phase::PLANNING) {
    context_.SetPending(response);
    return response;
  }
  if (save->writes()) {  // what it has written may not be what this call copies
    save->TakeBack();
    StopWriter(*save);
    context_.SetPending(response);
    return response;
  }
  response.set_save(save->id());
  save->AddPlacements(response);
  save->HandOut(next_staging_++);
  response.set_staging(save->staging());
  if (response.placements_size() > 0) {  // whoever copies nothing need not be able to write
    response.mutable_slab()->set_descriptor_id(slab_.made()->descriptor_id);
    response.mutable_slab()->set_bytes(slab_.made()->bytes);
    slab_.use().HandOut(save->trainer());
  }
  Advance(*save);
  return response;
}

bool RankSaves::IsNextCall(RankSave& save, const v1::BeginSaveRequest& request) {
  if (save.told() || save.trainer() != request.trainer_incarnation() || save.id() == 0) return true;
  // Bytes that are being written, or read by other ranks, must not change: a commit holds them.
  if (save.Staged() && (save.phase() != v1::Phase::STAGED || save.write_attempt() != 0)) return true;
  if (!save.error().ok() || save.layout()->digest == request.layout().digest()) return false;
  // Without a word, by an interrupt: the trainer is told of the call that it makes now.
  const uint32_t rank = context_.options.rank;
  Fail(save, MakeError(Reason::kSaveCancelled,
                       absl::StrCat("rank ", rank, ": the trainer gave up saving step ", save.step(),
                                    " and began again with another layout"),
                       {{"rank", absl::StrCat(rank)}, {"step", absl::StrCat(save.step())}}));
  save.Told();
  Advance();
  return true;
}

// The next call of a step begins when the one before has its outcome.
absl::Status RankSaves::AwaitTurn(RankSave& save, const v1::BeginSaveRequest& request, absl::Time now) {
  const absl::Duration timeout = TimeoutOf(request);
  if (save.AwaitEnd(request.trainer_incarnation(), timeout, now)) return absl::OkStatus();
  if (!context_.trouble.status().ok()) return context_.trouble.status();
  if (save.order().has_stalled()) return StatusFromProto(save.order().stalled());
  const uint32_t rank = context_.options.rank;
  return MakeError(Reason::kSaveInProgress,
                   absl::StrCat("rank ", rank, ": the attempt before to save step ", save.step(),
                                " has not ended within ", DurationText(timeout)),
                   {{"step", absl::StrCat(save.step())}, {"rank", absl::StrCat(rank)}});
}

absl::Status RankSaves::ErrorToTell(RankSave& save, absl::Time now) const {
  if (save.naming_deadline() == absl::InfinitePast()) return save.error();
  if (save.OrderedToAbort()) {
    if (absl::Status named = StatusFromProto(save.order().error()); !named.ok()) return named;
  }
  if (now < save.naming_deadline()) return absl::OkStatus();
  // Who is kept from the coordinator does not know whether another rank was late.
  const absl::Status& trouble = context_.trouble.status();
  return trouble.ok() ? save.error() : LateBecauseOf(trouble, save);
}

absl::Status RankSaves::CheckRoom() const {
  const auto failed = std::count_if(saves_.begin(), saves_.end(),
                                    [](const auto& entry) { return entry.second.phase() == v1::Phase::FAILED; });
  if (static_cast<size_t>(failed) < kMaxFailed) return absl::OkStatus();
  const std::string why = absl::StrCat(failed, " saves have failed that the coordinator has yet to hear of");
  if (!context_.trouble.status().ok()) return Annotate(context_.trouble.status(), why);
  return MakeError(Reason::kSaveInProgress, absl::StrCat("rank ", context_.options.rank, ": ", why),
                   {{"rank", absl::StrCat(context_.options.rank)}});
}

absl::Status RankSaves::CommitStaging(const v1::CommitStagingRequest& request) {
  RankSave* save = FindById(request.save());
  if (save == nullptr || save->trainer() != request.trainer_incarnation()) {
    if (const auto ended = ended_.Tell(request.save(), request.trainer_incarnation()); ended.has_value()) return *ended;
    return MakeError(Reason::kBadRequest,
                     absl::StrCat("rank ", context_.options.rank, ": no save ", request.save(), " was begun"));
  }
  if (!save->error().ok()) {
    save->Told();
    return save->error();
  }
  if (save->Staged()) return absl::OkStatus();
  if (save->phase() != v1::Phase::STAGING) {
    return MakeError(Reason::kBadRequest,
                     absl::StrCat("save ", save->id(), " of step ", save->step(), " has no staging buffer yet"));
  }
  CAIRN_RETURN_IF_ERROR(save->Stage(request));
  if (const int sampled = request.sampled_checksums_size(); sampled > 0) {
    next_sample_ = save->checklist().may[static_cast<size_t>(sampled) - 1] + 1;
  }
  slab_.use().Staged(save->trainer());
  if (save->writes()) context_.Do(action::EndStaging{save->id(), save->object_bytes()});
  context_.Changed();
  Advance();
  return absl::OkStatus();
}

absl::StatusOr<RankSave*> RankSaves::FindStaging(uint64_t id, uint64_t trainer) {
  RankSave* save = FindById(id);
  if (save != nullptr && save->trainer() == trainer && !save->error().ok()) return save->error();
  if (save != nullptr && save->trainer() == trainer && save->phase() == v1::Phase::STAGING) return save;
  const auto ended = ended_.Tell(id, trainer);
  if (ended.has_value() && !ended->ok()) return *ended;
  return MakeError(Reason::kBadRequest,
                   absl::StrCat("rank ", context_.options.rank, ": no save ", id, " is being staged"));
}

absl::StatusOr<v1::WaitSaveResponse> RankSaves::Wait(const v1::WaitSaveRequest& request) {
  v1::WaitSaveResponse response;
  const RankSave* save = request.save() != 0 ? FindById(request.save()) : Find(request.step());
  if (save != nullptr && save->id() != 0) {
    context_.SetPending(response);
    response.set_attempt(save->attempt());
    if (!response.has_stalled() && save->order().has_stalled()) *response.mutable_stalled() = save->order().stalled();
    return response;
  }
  if (const v1::Checkpoint* outcome = ended_.Outcome(request.step(), request.save(), request.trainer_incarnation());
      outcome != nullptr) {
    *response.mutable_checkpoint() = *outcome;
    return response;
  }
  // The coordinator knows no more than this process of a save that the process has begun itself.
  const bool own = request.save() >= (context_.options.incarnation | 1) && request.save() < next_save_;
  const bool named = request.attempt() != 0 || (request.save() != 0 && !own);
  return named && CheckStep(request.step()).ok() ? AskFor(request) : UnknownSave(request.step());
}

absl::Status RankSaves::UnknownSave(int64_t step) const {
  const uint32_t rank = context_.options.rank;
  return MakeError(Reason::kNotCommitted, absl::StrCat("rank ", rank, ": this agent knows of no save of step ", step),
                   {{"step", absl::StrCat(step)}, {"rank", absl::StrCat(rank)}});
}

absl::StatusOr<v1::WaitSaveResponse> RankSaves::AskFor(const v1::WaitSaveRequest& request) {
  v1::WaitSaveResponse response;
  const AskedSaves::Question question{request.trainer_incarnation(), request.step(), request.attempt(),
                                      request.attempt() == 0 ? request.save() : 0};
  if (const auto outcome = asked_.Take(question); outcome.has_value()) {
    if (outcome->phase() == v1::Phase::UNKNOWN) return UnknownSave(request.step());
    absl::Status error;
    if (outcome->phase() == v1::Phase::ABORTED) {
      error = StatusFromProto(outcome->error());
      if (error.ok()) error = RankSave::Aborted(request.step());
    }
    *response.mutable_checkpoint() = CheckpointOf(*outcome, error);
    return response;
  }
  if (asked_.Ask(question, next_call_)) {
    ++next_call_;
    context_.Changed();
  }
  context_.SetPending(response);
  response.set_attempt(request.attempt());
  const v1::SaveOrder* last = asked_.Last(question);
  if (!response.has_stalled() && last != nullptr && last->has_stalled()) *response.mutable_stalled() = last->stalled();
  return response;
}

absl::Status RankSaves::Cancel(const v1::CancelSaveRequest& request) {
  slab_.use().GaveUp(request.trainer_incarnation());
  RankSave* save = request.save() != 0 ? FindById(request.save()) : Find(request.step());
  if (save == nullptr || save->trainer() != request.trainer_incarnation() ||
      (save->phase() != v1::Phase::PLANNING && save->phase() != v1::Phase::STAGING)) {
    return absl::OkStatus();
  }
  absl::Status error = StatusFromProto(request.error());
  if (error.ok() || !ReasonOf(error)) {
    const std::string why = error.ok() ? "" : absl::StrCat(": ", error.message());
    const uint32_t rank = context_.options.rank;
    error = MakeError(Reason::kSaveCancelled,
                      absl::StrCat("rank ", rank, ": the trainer gave up saving step ", save->step(), why),
                      {{"rank", absl::StrCat(rank)}, {"step", absl::StrCat(save->step())}});
  }
  Fail(*save, std::move(error));
  save->Told();
  Advance();
  return absl::OkStatus();
}

void RankSaves::OnTrainerLost(uint64_t trainer, const absl::Status& error) {
  for (auto& [step, save] : saves_) {
    if (save.trainer() != trainer) continue;
    if (save.phase() == v1::Phase::PLANNING || save.phase() == v1::Phase::STAGING) Fail(save, error);
  }
}

void RankSaves::OnLayoutRefused(const std::string& digest, const absl::Status& error) {
  for (auto& [step, save] : saves_) {
    const bool waits = save.error().ok() && save.phase() == v1::Phase::PLANNING && save.layout() != nullptr;
    if (waits && save.layout()->digest == digest) Fail(save, error);
  }
}

void RankSaves::Fail(RankSave& save, absl::Status error) {
  save.Fail(std::move(error));
  if (save.writes()) StopWriter(save);
  context_.Changed();
}

bool RankSaves::HoldsStaged() const {
  return writer_ || std::any_of(saves_.begin(), saves_.end(), [](const auto& entry) { return entry.second.Staged(); });
}

bool RankSaves::HoldsSlab() const {
  if (!slab_.made()) return false;
  return writer_ ||
         std::any_of(saves_.begin(), saves_.end(), [](const auto& entry) { return entry.second.HoldsSlab(); });
}

std::string RankSaves::SlabHolders() const {
  std::vector<std::string> holders;
  for (const auto& [step, save] : saves_) {
    if (save.HoldsSlab()) {
      holders.push_back(
          absl::StrCat("step ", step, " (", absl::AsciiStrToLower(v1::Phase::Value_Name(save.phase())), ")"));
    }
  }
  if (holders.empty()) return "an earlier trainer, whose copies have not ended";
  return absl::StrCat("the save of ", absl::StrJoin(holders, " and of "));
}

bool RankSaves::Uses(const std::string& layout_digest) const {
  return std::any_of(saves_.begin(), saves_.end(), [&](const auto& entry) {
    return entry.second.layout() && entry.second.layout()->digest == layout_digest;
  });
}

}  // namespace cairn
