#include "agent/session/rank_save.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/status/status_proto.h"

namespace cairn {

absl::Status RankSave::Aborted(int64_t step) {
  return MakeError(Reason::kSaveCancelled, absl::StrCat("the save of step ", step, " was aborted"));
}

RankSave::RankSave(const Begin& begin, const v1::BeginSaveRequest& request, RankLayoutPtr layout)
    : layout_(std::move(layout)), ask_first_(begin.ask_first), stage_deadline_(begin.deadline) {
  begun_.set_save(begin.id);
  begun_.set_call(begin.call);
  begun_.set_step(request.step());
  begun_.set_trainer_incarnation(request.trainer_incarnation());
  begun_.set_layout_digest(layout_->digest);
  begun_.set_allow_dropped_names(request.allow_dropped_names());
  begun_.set_overwrite(request.overwrite());
  if (request.has_resumed_from()) *begun_.mutable_resumed_from() = request.resumed_from();
  *begun_.mutable_metrics() = request.metrics();
}

RankSave::RankSave(const v1::SaveOrder& abort)
    : phase_(v1::Phase::STOPPED), attempt_(abort.attempt()), error_(StatusFromProto(abort.error())) {
  begun_.set_step(abort.step());
}

void RankSave::Open(SaveImagePtr image, ReplicaChecklist checklist) {
  staged_ = image;
  target_ = std::move(image);
  checklist_ = std::move(checklist);
  phase_ = v1::Phase::STAGING;
}

void RankSave::StageAgain(absl::Time deadline) {
  phase_ = v1::Phase::STAGING;
  stage_deadline_ = deadline;
  replica_checksum_.clear();
  device_checksum_.clear();
}

void RankSave::StartWriting() {
  if (phase_ != v1::Phase::STAGING) phase_ = v1::Phase::WRITING;
  writes_ = true;
  write_attempt_ = order_.attempt();
  write_nonce_ = order_.attempt_nonce();
  bytes_done_ = 0;
  result_.Clear();
  waiting_for_.clear();
  way_ = order_.exchange().way();
}

void RankSave::StopWriting() {
  writes_ = false;
  if (OrderedToAbort()) {
    phase_ = v1::Phase::STOPPED;
  } else if (!error_.ok()) {
    phase_ = v1::Phase::FAILED;
  } else if (phase_ == v1::Phase::WRITING) {
    phase_ = v1::Phase::STAGED;
  } else {
    write_attempt_ = 0;  // nothing of this attempt was kept: it may be written from the beginning
    bytes_done_ = 0;
  }
}

bool RankSave::MayBeWrittenEarly() const {
  return phase_ == v1::Phase::STAGING && staging_ != 0 && error_.ok() && staged_ == target_ &&
         staged_->slab_bytes > 0 && staged_->moved_in.empty() && staged_->moved_out.empty();
}

void RankSave::Abort(const v1::SaveOrder& order, bool writing) {
  order_ = order;
  attempt_ = order.attempt();
  if (error_.ok()) error_ = StatusFromProto(order.error());
  if (error_.ok()) error_ = Aborted(step());
  if (!writing) phase_ = v1::Phase::STOPPED;
}

bool RankSave::Obey(const v1::SaveOrder& order) {
  const bool other = attempt_ != order.attempt();
  // An order that only waits may name the attempt without its nonce.
  if (order.attempt_nonce() != 0 || other) attempt_nonce_ = order.attempt_nonce();
  order_ = order;
  attempt_ = order.attempt();
  return other;
}

void RankSave::TakeRequestId(const v1::SaveOrder& order) {
  if (!order.request_id().empty()) request_id_ = order.request_id();
}

void RankSave::TakeDeviceChecksums(const std::map<uint32_t, uint32_t>& checksums) {
  for (const auto& [item, checksum] : checksums) device_checksum_[item] = checksum;
}

bool RankSave::TakeProgress(uint64_t bytes_done, std::vector<uint32_t> waiting_for) {
  bytes_done_ = bytes_done;
  return std::exchange(waiting_for_, waiting_for) != waiting_for;
}

bool RankSave::AwaitEnd(uint64_t trainer, absl::Duration timeout, absl::Time now) {
  if (!next_call_ || next_call_->trainer != trainer) next_call_ = {trainer, now + timeout};
  if (now < next_call_->deadline) return true;
  next_call_.reset();
  return false;
}

bool RankSave::Staged() const {
  return phase_ == v1::Phase::STAGED || phase_ == v1::Phase::WRITING || phase_ == v1::Phase::WRITTEN;
}

bool RankSave::HoldsSlab() const {
  return staged_ != nullptr && phase_ >= v1::Phase::STAGING && phase_ <= v1::Phase::WRITTEN;
}

bool RankSave::OrderedToGoOn() const {
  return order_.phase() == v1::Phase::STAGING || order_.phase() == v1::Phase::WRITING;
}

void RankSave::Fail(absl::Status why) {
  if (error_.ok()) error_ = std::move(why);
  if (phase_ != v1::Phase::STOPPED && !writes_) phase_ = v1::Phase::FAILED;
}

std::vector<uint32_t> RankSave::Peers() const {
  std::set<uint32_t> ranks;
  for (const MovedIn& moved : target_->moved_in) ranks.insert(moved.from_rank);
  if (order_.exchange().ranks_size() > 0) ranks.insert(order_.exchange().ranks(0));
  ranks.erase(target_->rank);
  return {ranks.begin(), ranks.end()};
}

absl::Status RankSave::Stage(const v1::CommitStagingRequest& request) {
  if (static_cast<size_t>(request.object_sizes_size()) != layout_->object_count()) {
    return MakeError(Reason::kBadRequest,
                     absl::StrCat("lengths of ", request.object_sizes_size(), " objects were given, the layout has ",
                                  layout_->object_count()));
  }
  for (size_t i = 0; i < layout_->object_count(); ++i) {
    const StoredItem& object = layout_->items[layout_->shard_count + i];
    const uint64_t bytes = request.object_sizes(static_cast<int>(i));
    if (bytes > object.bytes()) {
      return MakeError(Reason::kBadRequest,
                       absl::StrCat("object ", object.name, " has ", bytes, " bytes, its slot only ", object.bytes()),
                       {{"name", object.name}});
    }
  }
  CAIRN_RETURN_IF_ERROR(TakeReplicaChecksums(checklist_, *layout_, request, replica_checksum_));
  object_bytes_.assign(request.object_sizes().begin(), request.object_sizes().end());
  phase_ = writes_ ? v1::Phase::WRITING : v1::Phase::STAGED;
  return absl::OkStatus();
}

absl::Status RankSave::EndWriting(v1::WriteResult result) {
  writes_ = false;
  for (size_t i = 0; i < target_->file.size() && i < static_cast<size_t>(result.files_size()); ++i) {
    const std::vector<uint32_t>& items = target_->file[i].item;
    const v1::FileResult& file = result.files(static_cast<int>(i));
    for (size_t k = 0; k < items.size() && k < static_cast<size_t>(file.item_checksums_size()); ++k) {
      const auto wanted = device_checksum_.find(items[k]);
      if (wanted == device_checksum_.end() || wanted->second == file.item_checksums(static_cast<int>(k))) continue;
      const std::string& name = target_->ItemAt(items[k]).name;
      return MakeError(Reason::kTornSnapshot,
                       absl::StrCat(name, ": the bytes that were written are not those that the GPU held at the save"),
                       {{"tensor", name}});
    }
  }
  phase_ = v1::Phase::WRITTEN;
  bytes_done_ = target_->file_bytes;
  result_ = std::move(result);
  return absl::OkStatus();
}

bool RankSave::WrittenAsOrdered() const {
  return order_.attempt() == write_attempt_ && order_.attempt_nonce() == write_nonce_;
}

void RankSave::AddPlacements(v1::BeginSaveResponse& response) const {
  for (uint32_t item = 0; item < staged_->slab_offset.size(); ++item) {
    if (staged_->slab_offset[item] == SaveImage::kNotStaged) continue;
    v1::Placement& placement = *response.add_placements();
    placement.set_item(item);
    placement.set_slab_offset(staged_->slab_offset[item]);
    placement.set_bytes(staged_->layout->items[item].bytes());
  }
  response.mutable_check_items()->Assign(checklist_.must.begin(), checklist_.must.end());
  response.mutable_may_check_items()->Assign(checklist_.may.begin(), checklist_.may.end());
}

v1::SaveState RankSave::State() const {
  v1::SaveState state = begun_;
  state.set_phase(phase_);
  state.set_attempt(attempt_);
  state.set_attempt_nonce(attempt_nonce_);
  if (target_) {
    state.set_plan_digest(target_->plan_digest);
    state.set_bytes_total(target_->file_bytes);
  }
  state.set_bytes_done(bytes_done_);
  if (!error_.ok()) *state.mutable_error() = StatusToProto(error_);
  if (phase_ == v1::Phase::WRITTEN) *state.mutable_result() = result_;
  if (phase_ == v1::Phase::WRITING) {
    state.mutable_awaited_ranks()->Assign(waiting_for_.begin(), waiting_for_.end());
  }
  for (const v1::ReplicaChecksum& checksum : replica_checksum_) *state.add_replica_checksums() = checksum;
  // Under another plan than that of the checks, the rank may hold more shards that it does not write.
  state.set_all_replicas_checked(Staged() && checklist_.all &&
                                 std::includes(staged_->replica.begin(), staged_->replica.end(),
                                               target_->replica.begin(), target_->replica.end()));
  state.set_request_id(request_id_);
  return state;
}

}  // namespace cairn
