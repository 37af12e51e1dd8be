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

RankLoad::RankLoad(const v1::BeginLoadRequest& request, RankLayoutPtr layout, RankLayoutPtr source, KeptSavePtr kept)
    : layout_(std::move(layout)),
      source_layout_(std::move(source)),
      kept_(std::move(kept)),
      reads_pieces_(request.reads_pieces()) {
  begun_.set_number(request.number());
  begun_.set_trainer_incarnation(request.trainer_incarnation());
  if (request.has_step()) begun_.set_step(request.step());
  begun_.set_layout_digest(layout_->digest);
  begun_.set_strict(request.strict());
  begun_.set_fallback(request.fallback());
  begun_.set_verify_fingerprints(request.verify_fingerprints());
  if (source_layout_ != nullptr) begun_.set_source_layout_digest(source_layout_->digest);
  // The coordinator plans by that, and so does its successor.
  if (kept_ == nullptr) return;
  begun_.set_kept_step(kept_->step);
  begun_.set_kept_attempt(kept_->attempt);
}

void RankLoad::StartReading(SaveImagePtr source_image) {
  source_image_ = std::move(source_image);
  plan_ = fetched_;
  // A reshard takes bytes from memory. They do not count as read from storage.
  if (source_layout_ == nullptr) read_bytes_ = plan_->read_bytes();
  reading_ = true;
  if (order_.exchange().way() != v1::Exchange::UNDECIDED) phase_ = v1::Phase::READING;
}

bool RankLoad::TakeStarted(const Started& started) {
  consumer_ = started.consumer;
  if (started.source) source_memory_ = started.source;
  const bool waited = phase_ == v1::Phase::PLANNING;
  if (waited) {
    exchange_refusal_ = started.exchange_refusal;
    phase_ = v1::Phase::READING;
  }
  return waited || started.source;
}

bool RankLoad::Consume(std::vector<uint64_t> parts) {
  if (std::exchange(consumed_, true)) return false;
  if (begun_.verify_fingerprints()) parts_ = std::move(parts);
  return true;
}

bool RankLoad::Complete() {
  if (phase_ != v1::Phase::READING || !consumed_ || !progress_.all_read) return false;
  phase_ = v1::Phase::DONE;
  return true;
}

void RankLoad::Fail(absl::Status why) {
  if (error_.ok()) error_ = std::move(why);
  if (phase_ != v1::Phase::STOPPED) phase_ = v1::Phase::FAILED;
}

bool RankLoad::Abort(const v1::LoadOrder& order, const absl::Status& why) {
  if (error_.ok() || order.phase() == v1::Phase::FAILED) {
    absl::Status outcome = StatusFromProto(order.error());
    if (!outcome.ok()) error_ = std::move(outcome);
  }
  if (error_.ok()) error_ = why;
  if (reading_ || phase_ == v1::Phase::STOPPED) return false;
  phase_ = v1::Phase::STOPPED;
  return true;
}

void RankLoad::EndReading() {
  reading_ = false;
  stopping_ = false;
  consumer_ = nullptr;  // not the last one: the shell keeps it until no call uses it
  if (!error_.ok()) phase_ = v1::Phase::STOPPED;
}

void RankLoad::End() {
  ended_ = true;
  layout_.reset();
  source_layout_.reset();
  source_image_.reset();
  plan_.reset();
  fetched_.reset();
  kept_.reset();
  parts_ = {};
}

void RankLoad::End(const v1::LoadOrder& done) {
  order_ = done;
  End();
}

bool RankLoad::TakeExchange(const v1::Exchange& exchange) {
  if (!reading_ || stopping_ || order_.exchange().way() != v1::Exchange::UNDECIDED ||
      (exchange.way() != v1::Exchange::HOST && exchange.way() != v1::Exchange::GROUP)) {
    return false;
  }
  *order_.mutable_exchange() = exchange;
  return true;
}

bool RankLoad::TakeProgress(const Progress& progress) {
  const bool read_before = progress_.all_read;
  progress_ = progress;
  progress_.all_read = read_before || progress.all_read;
  return progress_.all_read && !read_before;
}

bool RankLoad::WantsPlan() const {
  return phase_ == v1::Phase::PLANNING && order_.phase() == v1::Phase::READING && plan_ == nullptr;
}

bool RankLoad::HasOrderedPlan() const { return fetched_ != nullptr && fetched_->plan_digest() == order_.plan_digest(); }

bool RankLoad::UsesLayout(const std::string& digest) const {
  return (layout_ != nullptr && layout_->digest == digest) ||
         (source_layout_ != nullptr && source_layout_->digest == digest);
}

absl::Status RankLoad::TakePlan(const std::string& bytes, uint32_t own_rank) {
  CAIRN_ASSIGN_OR_RETURN(v1::ReadPlan read, ParseReadPlan(bytes));
  auto part = std::make_shared<v1::ReadPlan>(std::move(read));
  if (part->plan_digest() != order_.plan_digest() || part->rank() != own_rank ||
      part->layout_digest() != layout_->digest) {
    return MakeError(Reason::kInternal,
                     absl::StrCat("rank ", own_rank, ": the coordinator sent something else for plan ",
                                  DigestHex(order_.plan_digest()).substr(0, 12)));
  }
  std::set<uint32_t> ranks;
  for (const v1::Copy& copy : part->copies()) {
    if (copy.source_rank() != own_rank) ranks.insert(copy.source_rank());
  }
  sources_.assign(ranks.begin(), ranks.end());
  fetched_ = std::move(part);
  return absl::OkStatus();
}

void RankLoad::Describe(v1::BeginLoadResponse& response) const {
  if (source_memory_) {
    response.mutable_source_memory()->set_descriptor_id(source_memory_->descriptor_id);
    response.mutable_source_memory()->set_bytes(source_memory_->bytes);
    for (uint32_t item = 0; item < source_image_->slab_offset.size(); ++item) {
      if (source_image_->slab_offset[item] == SaveImage::kNotStaged) continue;
      v1::Placement& placement = *response.add_source_placements();
      placement.set_item(item);
      placement.set_slab_offset(source_image_->slab_offset[item]);
      placement.set_bytes(source_image_->layout->items[item].bytes());
    }
  }
  response.set_step(order_.step());
  *response.mutable_objects() = plan_->objects();
  *response.mutable_missing_names() = order_.missing_names();
  *response.mutable_unexpected_names() = order_.unexpected_names();
  *response.mutable_passed_over_steps() = order_.passed_over_steps();
  response.set_world_size(order_.world_size());
  response.set_line(order_.line());
  response.set_mirror(order_.mirror());
  *response.mutable_warnings() = order_.warnings();
  response.set_mapping_report(plan_->mapping_report());
}

void RankLoad::Describe(v1::EndLoadResponse& response) const {
  response.set_bytes_read(read_bytes_);
  response.set_total_bytes_read(order_.total_bytes_read());
  response.set_unique_bytes(order_.unique_bytes());
  response.set_storage_bytes(order_.storage_bytes());
  response.set_verified_tensors(order_.verified_tensors());
  for (const v1::Transport each : progress_.transport.transports) response.add_transports(each);
  response.set_nccl_refusal(progress_.transport.nccl_refusal);
  response.set_io_path(order_.io_path() == v1::IO_PATH_UNSPECIFIED ? progress_.io_path : order_.io_path());
}

v1::LoadState RankLoad::State() const {
  v1::LoadState state = begun_;
  state.set_phase(phase_);
  if (plan_ != nullptr) {
    state.set_plan_digest(plan_->plan_digest());
    state.set_transfer_token_digest(Digest(order_.transfer_token()));
    state.set_bytes_total(plan_->read_bytes());
  }
  state.set_bytes_done(progress_.bytes_done);
  if (!error_.ok()) *state.mutable_error() = StatusToProto(error_);
  state.set_storage_bytes(progress_.storage_bytes);
  state.set_io_path(progress_.io_path);
  if (source_layout_ != nullptr) state.set_source_staged(source_staged_);
  state.set_exchange_refusal(exchange_refusal_);
  if (phase_ == v1::Phase::DONE) state.mutable_fingerprint_parts()->Add(parts_.begin(), parts_.end());
  return state;
}

}  // namespace cairn
