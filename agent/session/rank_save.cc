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

bool RankSave::Staged() const {
  return phase == v1::SaveState::STAGED || phase == v1::SaveState::WRITING || phase == v1::SaveState::WRITTEN;
}

bool RankSave::HoldsSlab() const {
  return staged != nullptr && phase >= v1::SaveState::STAGING && phase <= v1::SaveState::WRITTEN;
}

bool RankSave::OrderedToGoOn() const {
  return order.action() == v1::SaveOrder::STAGE || order.action() == v1::SaveOrder::WRITE;
}

void RankSave::Fail(absl::Status why) {
  if (error.ok()) error = std::move(why);
  if (phase != v1::SaveState::STOPPED) phase = v1::SaveState::FAILED;
}

std::vector<uint32_t> RankSave::Peers() const {
  std::set<uint32_t> ranks;
  for (const MovedIn& moved : target->moved_in) ranks.insert(moved.from_rank);
  if (order.exchange().ranks_size() > 0) ranks.insert(order.exchange().ranks(0));
  ranks.erase(target->rank);
  return {ranks.begin(), ranks.end()};
}

absl::Status RankSave::TakeStaged(const v1::CommitStagingRequest& request) {
  if (static_cast<size_t>(request.object_sizes_size()) != layout->object_count()) {
    return MakeError(Reason::kBadRequest, absl::StrCat("lengths of ", request.object_sizes_size(),
                                                       " objects were given, the layout has ", layout->object_count()));
  }
  for (size_t i = 0; i < layout->object_count(); ++i) {
    const StoredItem& object = layout->items[layout->shard_count + i];
    const uint64_t bytes = request.object_sizes(static_cast<int>(i));
    if (bytes > object.bytes()) {
      return MakeError(Reason::kBadRequest,
                       absl::StrCat("object ", object.name, " has ", bytes, " bytes, its slot only ", object.bytes()),
                       {{"name", object.name}});
    }
  }
  CAIRN_RETURN_IF_ERROR(TakeReplicaChecksums(checklist, *layout, request, replica_checksum));
  object_bytes.assign(request.object_sizes().begin(), request.object_sizes().end());
  return absl::OkStatus();
}

absl::Status RankSave::CheckWritten(const v1::WriteResult& written) const {
  if (device_checksum.empty()) return absl::OkStatus();
  for (size_t i = 0; i < target->file.size() && i < static_cast<size_t>(written.files_size()); ++i) {
    const std::vector<uint32_t>& items = target->file[i].item;
    const v1::FileResult& file = written.files(static_cast<int>(i));
    for (size_t k = 0; k < items.size() && k < static_cast<size_t>(file.item_checksums_size()); ++k) {
      const auto wanted = device_checksum.find(items[k]);
      if (wanted == device_checksum.end() || wanted->second == file.item_checksums(static_cast<int>(k))) continue;
      const std::string& name = target->ItemAt(items[k]).name;
      return MakeError(Reason::kTornSnapshot,
                       absl::StrCat(name, ": the bytes that were written are not those that the GPU held at the save"),
                       {{"tensor", name}});
    }
  }
  return absl::OkStatus();
}

void RankSave::AddPlacements(v1::BeginSaveResponse& response) const {
  for (uint32_t item = 0; item < staged->slab_offset.size(); ++item) {
    if (staged->slab_offset[item] == SaveImage::kNotStaged) continue;
    v1::Placement& placement = *response.add_placements();
    placement.set_item(item);
    placement.set_slab_offset(staged->slab_offset[item]);
    placement.set_bytes(staged->layout->items[item].bytes());
  }
  response.mutable_check_items()->Assign(checklist.must.begin(), checklist.must.end());
  response.mutable_may_check_items()->Assign(checklist.may.begin(), checklist.may.end());
}

v1::SaveState RankSave::State() const {
  v1::SaveState state;
  state.set_step(step);
  state.set_phase(phase);
  state.set_attempt(attempt);
  state.set_attempt_nonce(attempt_nonce);
  if (layout) state.set_layout_digest(layout->digest);
  if (target) {
    state.set_plan_digest(target->plan_digest);
    state.set_bytes_total(target->file_bytes);
  }
  state.set_bytes_done(bytes_done);
  if (!error.ok()) *state.mutable_error() = StatusToProto(error);
  if (phase == v1::SaveState::WRITTEN) *state.mutable_result() = result;
  if (phase == v1::SaveState::WRITING) {
    state.mutable_awaited_ranks()->Assign(waiting_for.begin(), waiting_for.end());
  }
  for (const v1::ReplicaChecksum& checksum : replica_checksum) *state.add_replica_checksums() = checksum;
  // Under another plan than that of the checks, the rank may hold more shards that it does not write.
  state.set_all_replicas_checked(
      Staged() && checklist.all &&
      std::includes(staged->replica.begin(), staged->replica.end(), target->replica.begin(), target->replica.end()));
  state.set_allow_dropped_names(allow_dropped_names);
  state.set_overwrite(overwrite);
  if (resumed_from.has_value()) *state.mutable_resumed_from() = *resumed_from;
  *state.mutable_metrics() = metrics;
  state.set_call(call);
  state.set_save(id);
  state.set_trainer_incarnation(trainer);
  state.set_request_id(request_id);
  return state;
}

}  // namespace cairn
