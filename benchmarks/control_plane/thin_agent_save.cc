// Saves of a thin agent, as agent/session/rank_saves.cc makes them.
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "benchmarks/control_plane/thin_agent.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/status/status_proto.h"
#include "store/write/attempt_owner.h"

namespace cairn {
namespace {

constexpr uint64_t kObjectBytes = 64;
// All ranks say this of every shared object: nobody looks into the sparse files, but the checksums are compared.
constexpr uint32_t kObjectChecksum = 0x0b1ec7;

bool Staged(v1::Phase::Value phase) {
  return phase == v1::Phase::STAGED || phase == v1::Phase::WRITING || phase == v1::Phase::WRITTEN;
}

}  // namespace

void ThinAgent::Save(int64_t step) {
  if (stopped_) return;
  SaveInWork& save = save_.emplace();
  save.state.set_step(step);
  save.state.set_phase(v1::Phase::PLANNING);
  save.state.set_layout_digest(layout_digest_);
  save.state.set_call(++calls_);
  save.state.set_trainer_incarnation(trainer_);
  around_.reached(Milestone::kBegun, options_.rank);
  Changed();
  AdvanceSave();
}

void ThinAgent::ApplySave(const v1::SaveOrder& order) {
  if (!save_ || order.step() != save_->state.step()) return;
  SaveInWork& save = *save_;
  // Begun after the request that this answers was sent.
  if (told_call_ != save.state.call()) return;
  if (order.call() != 0 && order.call() != save.state.call()) return;
  if (!order.request_id().empty()) save.state.set_request_id(order.request_id());
  switch (order.phase()) {
    case v1::Phase::COMMITTED:
    case v1::Phase::ABORTED: {
      const bool committed = order.phase() == v1::Phase::COMMITTED;
      if (!committed) error_ = StatusFromProto(order.error());
      current_step_ = save.state.step();
      save_.reset();
      around_.reached(committed ? Milestone::kCommitted : Milestone::kAborted, options_.rank);
      return Changed();
    }
    case v1::Phase::ABORTING:
      if (save.state.phase() == v1::Phase::STOPPED) return;
      save.order = order;
      save.state.set_attempt(order.attempt());
      save.state.set_phase(v1::Phase::STOPPED);
      return Changed();
    case v1::Phase::WAITING:
    case v1::Phase::STAGING:
    case v1::Phase::WRITING:
      if (save.state.attempt() != order.attempt()) Changed();
      if (order.attempt_nonce() != 0 || order.attempt() != save.state.attempt()) {
        save.state.set_attempt_nonce(order.attempt_nonce());
      }
      save.state.set_attempt(order.attempt());
      save.order = order;
      return;
    default:
      return;
  }
}

void ThinAgent::AdvanceSave() {
  if (!save_) return;
  SaveInWork& save = *save_;
  const bool ordered = save.order.phase() == v1::Phase::STAGING || save.order.phase() == v1::Phase::WRITING;
  const v1::Phase::Value phase = save.state.phase();
  if (phase == v1::Phase::PLANNING) {
    if (ordered && save.order.plan_digest() != plan_digest_) return WantPart(save.order.plan_digest());
    // Nothing here has changed, so the trainer need not wait for the other ranks.
    const bool cached = !plan_digest_.empty() && (current_plan_.empty() || current_plan_ == plan_digest_);
    if (!ordered && !cached) return;
    save.state.set_phase(v1::Phase::STAGING);
    save.state.set_plan_digest(plan_digest_);
    uint64_t total = 0;
    for (const v1::PlannedFile& file : part_.files()) total += file.header_bytes() + file.data_bytes();
    save.state.set_bytes_total(total);
    save.state.set_all_replicas_checked(ordered ? save.order.check_replicas() : current_plan_checks_);
    around_.After(options_.stage_time, [this, call = save.state.call()] { OnStaged(call); });
    return;
  }
  if (!ordered || (phase != v1::Phase::STAGING && !Staged(phase))) return;
  if (save.order.plan_digest() != save.state.plan_digest()) {
    // Another rank's layout changed.
    if (save.order.plan_digest() != plan_digest_) return WantPart(save.order.plan_digest());
    save.state.set_plan_digest(plan_digest_);
    Changed();
  }
  if (save.order.phase() != v1::Phase::WRITING) return;
  if (!std::exchange(save.ordered_to_write, true)) {
    around_.reached(Milestone::kWriteOrder, options_.rank);
    if (options_.dies_before_writing) return Stop();
  }
  if (save.order.attempt() == save.write_attempt && save.order.attempt_nonce() == save.write_nonce) return;
  if (phase == v1::Phase::STAGING) return;
  // In the midst of another attempt its files are given up: the timer below finds another attempt.
  save.state.set_phase(v1::Phase::WRITING);
  save.state.clear_result();
  save.state.set_bytes_done(0);
  save.write_attempt = save.order.attempt();
  save.write_nonce = save.order.attempt_nonce();
  around_.After(options_.write_time, [this, call = save.state.call(), attempt = save.write_attempt,
                                      nonce = save.write_nonce] { OnWriteEnded(call, attempt, nonce); });
}

void ThinAgent::OnStaged(uint64_t call) {
  if (stopped_ || !save_ || save_->state.call() != call || save_->state.phase() != v1::Phase::STAGING) return;
  save_->state.set_phase(v1::Phase::STAGED);
  v1::ReplicaChecksum& meta = *save_->state.add_replica_checksums();
  meta.set_item(shards_);
  meta.set_crc32c(kObjectChecksum);
  meta.set_object_bytes(kObjectBytes);
  around_.reached(Milestone::kStaged, options_.rank);
  Changed();
  AdvanceSave();
}

void ThinAgent::OnWriteEnded(uint64_t call, uint32_t attempt, uint64_t nonce) {
  if (stopped_ || !save_ || save_->state.call() != call || save_->state.phase() != v1::Phase::WRITING) return;
  if (save_->write_attempt != attempt || save_->write_nonce != nonce) return;
  auto result = WriteFiles(save_->order);
  if (!result.ok()) return FailSave(result.status());
  *save_->state.mutable_result() = *std::move(result);
  save_->state.set_bytes_done(save_->state.bytes_total());
  save_->state.set_phase(v1::Phase::WRITTEN);
  around_.reached(Milestone::kWritten, options_.rank);
  Changed();
}

absl::StatusOr<v1::WriteResult> ThinAgent::WriteFiles(const v1::SaveOrder& order) {
  v1::WriteResult result;
  if (around_.storage != nullptr) {
    CAIRN_RETURN_IF_ERROR(CheckAttemptOwner(*around_.storage, order.directory(), order.attempt_nonce()));
  }
  for (const v1::PlannedFile& file : part_.files()) {
    const uint64_t bytes = file.header_bytes() + file.data_bytes();
    v1::FileResult& written = *result.add_files();
    written.set_file_bytes(bytes);
    written.set_header_crc32c(static_cast<uint32_t>(random_()));
    for (const uint32_t item : file.items()) {
      const bool object = item >= shards_ && item < shards_ + 2;
      // Like the checksums of real tensors they cannot be compressed.
      written.add_item_checksums(item == shards_ ? kObjectChecksum : static_cast<uint32_t>(random_()));
      if (object) written.add_object_sizes(kObjectBytes);
    }
    if (around_.storage == nullptr) continue;
    // The file is only as large as planned: nobody reads it.
    const std::string path =
        around_.storage->FullPath(absl::StrCat(order.directory(), "/", file.name(), ".safetensors"));
    std::error_code failed;
    if (std::ofstream made(path); made) {
      std::filesystem::resize_file(path, bytes, failed);
    } else {
      failed = std::make_error_code(std::errc::io_error);
    }
    if (failed) return MakeError(Reason::kStorageError, absl::StrCat("cannot make ", path, " as large as planned"));
  }
  return result;
}

void ThinAgent::FailSave(const absl::Status& error) {
  if (!save_) return;
  *save_->state.mutable_error() = StatusToProto(error);
  save_->state.set_phase(v1::Phase::FAILED);
  Changed();
}

}  // namespace cairn
