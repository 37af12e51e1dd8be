#include "agent/session/rank_loads.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/status/status_proto.h"

namespace cairn {
namespace {

constexpr size_t kKeptLoads = 16;

}  // namespace

RankLoad* RankLoads::Find(uint64_t number) {
  const auto load = loads_.find(number);
  return load == loads_.end() ? nullptr : &load->second;
}

const RankLoad* RankLoads::FindOf(uint64_t trainer, uint64_t number) const {
  const auto load = loads_.find(number);
  return load == loads_.end() || load->second.trainer() != trainer ? nullptr : &load->second;
}

absl::Status RankLoads::Bad(uint64_t number, std::string_view what) const {
  const SessionOptions& own = context_.options;
  return MakeError(
      Reason::kBadRequest,
      absl::StrCat(own.job, ": rank ", own.rank, ": load ", number, " ", absl::string_view(what.data(), what.size())),
      {{"job", own.job}, {"rank", absl::StrCat(own.rank)}});
}

absl::Status RankLoads::Interrupted(std::string_view why) const {
  const SessionOptions& own = context_.options;
  return MakeError(Reason::kInterrupted,
                   absl::StrCat("rank ", own.rank, ": ", absl::string_view(why.data(), why.size())),
                   {{"job", own.job}, {"rank", absl::StrCat(own.rank)}});
}

absl::StatusOr<v1::BeginLoadResponse> RankLoads::Begin(const v1::BeginLoadRequest& request, RankLayoutPtr layout,
                                                       RankLayoutPtr source) {
  v1::BeginLoadResponse response;
  if (request.number() == 0) return Bad(0, "is none: loads are counted from 1");
  RankLoad* load = Find(request.number());
  if (load != nullptr && load->trainer() != request.trainer_incarnation()) {
    // One of a trainer that has ended; what it holds must be given back before the number can be used again.
    StopReading(*load);
    if (load->reading()) {
      context_.SetPending(response);
      return response;
    }
    loads_.erase(request.number());
    load = nullptr;
  }
  if (load == nullptr) {
    CAIRN_RETURN_IF_ERROR(GiveUpOthers(request.trainer_incarnation(), request.number()));
    ForgetEnded();
    KeptSavePtr kept = source == nullptr ? slab_.KeptFor(request.trainer_incarnation()) : nullptr;
    load = &loads_.emplace(request.number(), RankLoad(request, std::move(layout), std::move(source), std::move(kept)))
                .first->second;
    context_.Changed();
  }
  if (!load->error().ok()) return load->error();
  if (load->ended()) return Bad(request.number(), "has ended");
  if (load->Begun()) {
    load->Describe(response);
  } else {
    context_.SetPending(response);
  }
  return response;
}

// A trainer has one load at a time. This call of it was overtaken, or the last one was given up without a word.
absl::Status RankLoads::GiveUpOthers(uint64_t trainer, uint64_t number) {
  for (auto& [other_number, other] : loads_) {
    if (other.trainer() != trainer) continue;
    if (other_number > number) return Bad(number, absl::StrCat("was followed by load ", other_number));
    if (!other.ended()) Fail(other, Interrupted("the trainer gave the load up and began another"));
  }
  return absl::OkStatus();
}

void RankLoads::ForgetEnded() {
  // One that failed while the coordinator was away, and holds nothing, need not be told to it.
  for (auto load = loads_.begin(); load != loads_.end() && loads_.size() >= kKeptLoads;) {
    const bool over = (load->second.ended() || !load->second.error().ok()) && !load->second.reading();
    load = over ? loads_.erase(load) : std::next(load);
  }
}

absl::Status RankLoads::CommitSource(const v1::CommitSourceRequest& request) {
  CAIRN_RETURN_IF_ERROR(Receive(request.trainer_incarnation(), request.number()).status());
  RankLoad& load = *Find(request.number());
  if (!load.has_source_memory()) return Bad(request.number(), "has no memory for a source");
  if (!load.StageSource()) return absl::OkStatus();
  context_.Do(action::LendSource{load.number()});
  context_.Changed();
  return absl::OkStatus();
}

absl::StatusOr<RankLoads::Receiving> RankLoads::Receive(uint64_t trainer, uint64_t number) const {
  const RankLoad* load = FindOf(trainer, number);
  if (load == nullptr) return Bad(number, "was not begun");
  if (!load->error().ok()) return load->error();
  return Receiving{load->ended(), load->ended() ? nullptr : load->consumer()};
}

absl::StatusOr<v1::EndLoadResponse> RankLoads::End(const v1::EndLoadRequest& request) {
  v1::EndLoadResponse response;
  if (FindOf(request.trainer_incarnation(), request.number()) == nullptr) return Bad(request.number(), "was not begun");
  RankLoad& load = *Find(request.number());
  if (request.has_error() && request.error().code() != 0 && !load.ended() && load.error().ok()) {
    absl::Status error = StatusFromProto(request.error());
    if (!ReasonOf(error)) error = Interrupted(absl::StrCat("the trainer gave the load up: ", error.message()));
    Fail(load, error);
    Advance();
  }
  if (!load.error().ok()) {
    // The error for all ranks says more than this rank knew when it gave up: whom it waited for, and what to do next.
    if (load.ended() || !request.has_error()) return load.error();
    response.set_pending(true);
    return response;
  }
  if (load.plan() == nullptr && !load.ended()) return Bad(request.number(), "has no plan yet");
  if (load.Consume({request.fingerprint_parts().begin(), request.fingerprint_parts().end()})) {
    context_.Changed();
    Advance();
  }
  if (load.ended()) {
    load.Describe(response);
  } else {
    response.set_pending(true);
  }
  return response;
}

void RankLoads::OnTrainerLost(uint64_t trainer, const absl::Status& error) {
  for (auto& [number, load] : loads_) {
    if (load.trainer() == trainer && !load.ended() && !load.consumed()) Fail(load, error);
  }
}

void RankLoads::OnLayoutRefused(const std::string& digest, const absl::Status& error) {
  for (auto& [number, load] : loads_) {
    if (load.UsesLayout(digest) && !load.ended() && !load.Begun()) Fail(load, error);
  }
}

void RankLoads::Fail(RankLoad& load, absl::Status error) {
  load.Fail(std::move(error));
  context_.Changed();
}

void RankLoads::StopReading(RankLoad& load) {
  if (load.Stop()) context_.Do(action::StopRead{load.number()});
}

void RankLoads::AddTo(v1::AgentState& state) {
  told_.clear();
  for (const auto& [number, load] : loads_) {
    if (load.ended()) continue;
    *state.add_loads() = load.State();
    told_[number] = load.trainer();
  }
}

void RankLoads::Obey(const v1::LoadOrder& order) {
  RankLoad* load = Find(order.number());
  const auto told = told_.find(order.number());
  if (load == nullptr || load->ended() || told == told_.end() || told->second != load->trainer()) return;
  if (order.trainer_incarnation() != 0 && order.trainer_incarnation() != load->trainer()) return;
  switch (order.phase()) {
    case v1::Phase::READING:
      if (load->plan() == nullptr) {
        load->Obey(order);  // Advance follows
      } else if (load->TakeExchange(order.exchange())) {
        context_.Do(action::DecideExchange{load->number(), order.exchange()});
      }
      return;
    case v1::Phase::DONE:
      StopReading(*load);
      load->End(order);
      return context_.Changed();
    case v1::Phase::ABORTING:
      if (load->Abort(order, Interrupted("the load was aborted"))) context_.Changed();
      return StopReading(*load);
    case v1::Phase::FAILED:
      load->Abort(order, Interrupted("the load was aborted"));
      StopReading(*load);
      load->End();
      return context_.Changed();
    default:
      return;
  }
}

void RankLoads::Advance() {
  for (auto& [number, load] : loads_) Advance(load);
}

void RankLoads::Advance(RankLoad& load) {
  if (load.WantsPlan()) {
    StartReading(load);
  } else if (load.Complete()) {
    context_.Changed();
  }
}

void RankLoads::StartReading(RankLoad& load) {
  const v1::LoadOrder& order = load.order();
  if (!load.HasOrderedPlan()) {
    const std::string* bytes = plans_.Want(order.plan_digest());
    if (bytes == nullptr) return;
    if (const absl::Status taken = load.TakePlan(*bytes, context_.options.rank); !taken.ok()) return Fail(load, taken);
  }
  // The peers and the image are asked for side by side. In an exchange each rank speaks with all others of the group.
  std::optional<PeerMap> peers =
      plans_.WantPeers(order.exchange().way() == v1::Exchange::UNDECIDED ? context_.OtherRanks() : load.sources());
  SaveImagePtr source_image;
  if (load.source_layout() != nullptr) {
    auto image = plans_.WantImage(order.source_plan_digest(), load.source_layout());
    if (!image.ok()) return Fail(load, image.status());
    if (*image == nullptr) return;
    source_image = *std::move(image);
  }
  if (!peers.has_value()) return;
  load.StartReading(std::move(source_image));
  action::StartRead start = {load.number(), load.plan(), order, *std::move(peers), load.source_image()};
  start.reads_pieces = load.reads_pieces();
  if (load.source_layout() == nullptr) TakeKept(load, start);
  context_.Do(std::move(start));
  context_.Changed();
}

void RankLoads::TakeKept(const RankLoad& load, action::StartRead& start) {
  start.kept = slab_.KeptFor(load.trainer());
  if (start.kept == nullptr) {
    start.kept_refusal =
        load.kept() != nullptr ? "a save has begun to use the staging buffer" : slab_.RefusalFor(load.trainer());
  } else if (start.kept->IsReadBy(*load.plan())) {
    slab_.BeginReading(load.number());
  } else {
    start.kept = nullptr;
  }
}

void RankLoads::OnStarted(uint64_t number, const RankLoad::Started& started) {
  RankLoad* load = Find(number);
  if (load == nullptr || !load->reading() || !load->TakeStarted(started)) return;
  context_.Changed();
  Advance();
}

void RankLoads::OnProgress(uint64_t number, const RankLoad::Progress& progress) {
  RankLoad* load = Find(number);
  if (load == nullptr || !load->reading() || !load->TakeProgress(progress)) return;
  slab_.EndReading(number);
  context_.Changed();
  Advance();
}

void RankLoads::OnFailed(uint64_t number, const absl::Status& status) {
  RankLoad* load = Find(number);
  if (load == nullptr || !load->reading() || load->ended()) return;
  const std::string rank = absl::StrCat(context_.options.rank);
  ErrorMetadata metadata = {{"job", context_.options.job}, {"rank", rank}};
  if (load->source_layout() == nullptr) metadata.emplace_back("step", absl::StrCat(load->order().step()));
  Fail(*load, Annotate(status, absl::StrCat("rank ", rank), metadata));
}

void RankLoads::OnStopped(uint64_t number) {
  RankLoad* load = Find(number);
  if (load == nullptr) return;
  load->EndReading();
  slab_.EndReading(number);
  Advance();
  context_.Changed();
}

bool RankLoads::active() const {
  return std::any_of(loads_.begin(), loads_.end(), [](const auto& entry) { return !entry.second.ended(); });
}

bool RankLoads::Uses(const std::string& layout_digest) const {
  return std::any_of(loads_.begin(), loads_.end(),
                     [&](const auto& entry) { return entry.second.UsesLayout(layout_digest); });
}

}  // namespace cairn
