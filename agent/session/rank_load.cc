#include "agent/session/rank_load.h"

#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/rpc/plan_part.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/status/status_proto.h"

namespace cairn {

bool RankLoad::Begun() const { return plan != nullptr && (source_layout == nullptr || source_memory.has_value()); }

void RankLoad::Fail(absl::Status why) {
  if (error.ok()) error = std::move(why);
  if (phase != v1::Phase::STOPPED) phase = v1::Phase::FAILED;
}

void RankLoad::End() {
  ended = true;
  layout.reset();
  source_layout.reset();
  source_image.reset();
  plan.reset();
  fetched.reset();
  kept.reset();
}

absl::Status RankLoad::TakePlan(const std::string& bytes, uint32_t own_rank) {
  CAIRN_ASSIGN_OR_RETURN(v1::ReadPlan read, ParseReadPlan(bytes));
  auto part = std::make_shared<v1::ReadPlan>(std::move(read));
  if (part->plan_digest() != order.plan_digest() || part->rank() != own_rank ||
      part->layout_digest() != layout->digest) {
    return MakeError(Reason::kInternal,
                     absl::StrCat("rank ", own_rank, ": the coordinator sent something else for plan ",
                                  DigestHex(order.plan_digest()).substr(0, 12)));
  }
  std::set<uint32_t> ranks;
  for (const v1::Copy& copy : part->copies()) {
    if (copy.source_rank() != own_rank) ranks.insert(copy.source_rank());
  }
  sources.assign(ranks.begin(), ranks.end());
  fetched = std::move(part);
  return absl::OkStatus();
}

void RankLoad::Describe(v1::BeginLoadResponse& response) const {
  if (source_memory) {
    response.mutable_source_memory()->set_descriptor_id(source_memory->descriptor_id);
    response.mutable_source_memory()->set_bytes(source_memory->bytes);
    for (uint32_t item = 0; item < source_image->slab_offset.size(); ++item) {
      if (source_image->slab_offset[item] == SaveImage::kNotStaged) continue;
      v1::Placement& placement = *response.add_source_placements();
      placement.set_item(item);
      placement.set_slab_offset(source_image->slab_offset[item]);
      placement.set_bytes(source_image->layout->items[item].bytes());
    }
  }
  response.set_step(order.step());
  *response.mutable_objects() = plan->objects();
  *response.mutable_missing_names() = order.missing_names();
  *response.mutable_unexpected_names() = order.unexpected_names();
  *response.mutable_passed_over_steps() = order.passed_over_steps();
  response.set_world_size(order.world_size());
  response.set_line(order.line());
  response.set_mapping_report(plan->mapping_report());
}

void RankLoad::Describe(v1::EndLoadResponse& response) const {
  // A reshard takes bytes from memory. They do not count as read from storage.
  response.set_bytes_read(read_bytes);
  response.set_total_bytes_read(order.total_bytes_read());
  response.set_unique_bytes(order.unique_bytes());
  response.set_storage_bytes(order.storage_bytes());
  for (const v1::Transport each : transport.transports) response.add_transports(each);
  response.set_nccl_refusal(transport.nccl_refusal);
  response.set_io_path(order.io_path() == v1::IO_PATH_UNSPECIFIED ? io_path : order.io_path());
}

v1::LoadState RankLoad::State() const {
  v1::LoadState state;
  state.set_number(number);
  state.set_phase(phase);
  if (wanted_step) state.set_step(*wanted_step);
  state.set_layout_digest(layout->digest);
  state.set_strict(strict);
  state.set_fallback(fallback);
  if (plan) {
    state.set_plan_digest(plan->plan_digest());
    state.set_transfer_token_digest(Digest(order.transfer_token()));
    state.set_bytes_total(plan->read_bytes());
  }
  state.set_bytes_done(bytes_done);
  if (!error.ok()) *state.mutable_error() = StatusToProto(error);
  state.set_storage_bytes(storage_bytes);
  state.set_io_path(io_path);
  state.set_trainer_incarnation(trainer);
  if (kept != nullptr) {
    state.set_kept_step(kept->step);
    state.set_kept_attempt(kept->attempt);
  }
  if (source_layout != nullptr) {
    state.set_source_layout_digest(source_layout->digest);
    state.set_source_staged(source_staged);
  }
  state.set_exchange_refusal(exchange_refusal);
  return state;
}

}  // namespace cairn
