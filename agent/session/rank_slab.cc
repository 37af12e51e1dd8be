#include "agent/session/rank_slab.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/format/safetensors_header.h"
#include "common/status/reason.h"

namespace cairn {

absl::StatusOr<bool> RankSlab::Want(uint64_t bytes, uint64_t trainer, bool held) {
  bytes = std::max(bytes, kDataAlignment);  // something to write from, even for a rank that stages nothing
  if (making_ || held) return false;
  if (made_ && made_->bytes >= bytes && use_.AllowedTo(trainer)) return true;
  if (!error_.ok() && bytes >= error_bytes_) return std::exchange(error_, absl::OkStatus());
  making_ = true;
  error_ = absl::OkStatus();
  error_bytes_ = bytes;
  asker_ = trainer;
  made_.reset();
  use_ = SlabUse();
  kept_.reset();
  StopReaders();
  context_.Do(action::MakeSlab{bytes});
  return false;
}

void RankSlab::OnMade(absl::StatusOr<SlabDescription> slab, std::optional<uint64_t> attached) {
  making_ = false;
  if (slab.ok()) {
    made_ = *slab;
    error_ = absl::OkStatus();
  } else if (attached == asker_) {
    const std::string rank = absl::StrCat(context_.options.rank);
    error_ = Annotate(slab.status(), absl::StrCat("rank ", rank), {{"rank", rank}});
  }
}

bool RankSlab::Open() {
  kept_.reset();
  StopReaders();
  return !giving_up_;
}

void RankSlab::StopReaders() {
  if (readers_.empty()) return;
  readers_.clear();
  giving_up_ = true;
  context_.Do(action::GiveUpSlab());
}

void RankSlab::OnGivenUp() { giving_up_ = false; }

void RankSlab::Keep(KeptSave kept) {
  if (!context_.options.slab_loads || !made_.has_value()) return;
  kept.slab = made_->descriptor_id;
  kept_ = std::make_shared<const KeptSave>(std::move(kept));
}

KeptSavePtr RankSlab::KeptFor(uint64_t trainer) const { return use_.RestsFor(trainer) ? kept_ : nullptr; }

std::string RankSlab::RefusalFor(uint64_t trainer) const {
  return kept_ == nullptr || use_.RestsFor(trainer) ? "" : "an earlier trainer may still write into the staging buffer";
}

}  // namespace cairn
