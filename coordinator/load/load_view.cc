// Says what a load tells the agents and people.
#include <algorithm>

#include "common/base/time_proto.h"
#include "common/status/status_proto.h"
#include "coordinator/load/load.h"

namespace cairn {
namespace {

// Ranks call a load within seconds of each other. For one that does not, the others may wait until the phase timeout,
// so people are told much earlier whom they wait for.
constexpr absl::Duration kNoteAfter = absl::Seconds(2);

// A load that wants little finds the names of whole models unexpected. Every rank is told them, in one message, so they
// have a bound.
constexpr size_t kMostUnexpectedBytes = size_t{64} << 10;

}  // namespace

uint64_t Load::Line() const {
  constexpr uint64_t kSpread = 0x9E3779B97F4A7C15;  // tells the trainer's loads from each other in all bits
  const v1::LoadState& call = ranks_.front().state;
  return std::max<uint64_t>(call.trainer_incarnation() ^ (call.number() * kSpread), 1);
}

v1::LoadOrder Load::OrderFor(const v1::LoadState& state) const {
  v1::LoadOrder order;
  order.set_number(state.number());
  order.set_trainer_incarnation(state.trainer_incarnation());
  if (wanted_step().has_value()) order.set_step(*wanted_step());
  switch (phase_) {
    case v1::Phase::COLLECTING:
      order.set_phase(v1::Phase::WAITING);
      break;
    case v1::Phase::READING:
      order.set_phase(v1::Phase::READING);
      order.set_plan_digest(plan_.plan_digest);
      order.set_source_plan_digest(plan_.source_plan_digest);
      order.set_transfer_token(plan_.transfer_token);
      if (plan_.IsStep()) order.set_line(Line());
      order.set_mirror(plan_.mirror);
      for (const absl::Status& warning : plan_.warnings) *order.add_warnings() = StatusToProto(warning);
      AddExchange(order);
      break;
    case v1::Phase::DONE:
      order.set_phase(v1::Phase::DONE);
      order.set_plan_digest(plan_.plan_digest);
      order.set_total_bytes_read(plan_.total_bytes_read);
      order.set_unique_bytes(plan_.unique_bytes);
      order.set_storage_bytes(storage_bytes_);
      order.set_io_path(io_path_);
      order.set_verified_tensors(verified_tensors_.value_or(0));
      break;
    case v1::Phase::FAILED:
      order.set_phase(v1::Phase::FAILED);
      *order.mutable_error() = StatusToProto(error_);
      break;
    default:
      break;
  }
  if (has_plan() && !ended()) {
    for (const std::string& name : plan_.missing) order.add_missing_names(name);
    size_t unexpected_bytes = 0;
    for (const std::string& name : plan_.unexpected) {
      unexpected_bytes += name.size();
      if (unexpected_bytes > kMostUnexpectedBytes) break;
      order.add_unexpected_names(name);
    }
    order.set_world_size(plan_.world_size);
    for (const auto& [step, error] : plan_.passed_over) {
      v1::PassedOver& passed_over = *order.add_passed_over_steps();
      passed_over.set_step(step);
      *passed_over.mutable_error() = StatusToProto(error);
    }
  }
  return order;
}

void Load::AddExchange(v1::LoadOrder& order) const {
  if (way_.kind == ExchangeWay::Kind::kNone) return;
  v1::Exchange& exchange = *order.mutable_exchange();
  exchange.set_way(way_.kind == ExchangeWay::Kind::kUndecided ? v1::Exchange::UNDECIDED
                   : way_.kind == ExchangeWay::Kind::kHost    ? v1::Exchange::HOST
                                                              : v1::Exchange::GROUP);
  exchange.set_group(way_.kind == ExchangeWay::Kind::kGroup ? way_.group : 0);
  exchange.set_reason(way_.reason);
}

NoteworthyRanks Load::Noteworthy(const JobContext& context) const {
  NoteworthyRanks ranks;
  if (ended()) return ranks;
  ranks.awaited = Awaited(context);
  for (const int rank : ranks.awaited) {
    const Member* member = context.members.Find(rank);
    if ((member != nullptr && member->halted()) ||
        context.now - ProgressOf(rank, context) > context.options.phase_timeout / 2) {
      ranks.late.push_back(rank);
    }
  }
  return ranks;
}

v1::Load Load::View(const JobContext& context, const ShownRanks& shown) const {
  v1::Load view;
  view.set_number(id_);
  if (wanted_step().has_value()) view.set_step(*wanted_step());
  view.set_reshard(IsReshard());
  view.set_mirror(plan_.mirror);
  view.set_state(phase_);
  if (phase_ == v1::Phase::FAILED) *view.mutable_error() = StatusToProto(error_);
  if (!(phase_ == v1::Phase::FAILED && way_.refused)) {  // else no byte has gone any way, and the error says why
    view.set_exchange_transport(exchange_transport());
    view.set_nccl_refusal(way_.reason);
  }
  if (ended()) return view;
  const std::vector<int> late_ranks = Noteworthy(context).late;
  RankTally tally;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const int index = static_cast<int>(i);
    const Rank& rank = ranks_[i];
    const bool late = std::binary_search(late_ranks.begin(), late_ranks.end(), index);
    tally.Add(PhaseOf(rank), rank.state.bytes_done(), rank.state.bytes_total(), late);
    if (!shown.contains(index)) continue;
    v1::RankProgress& progress = *view.add_ranks();
    progress.set_rank(static_cast<uint32_t>(index));
    progress.set_phase(PhaseOf(rank));
    progress.set_bytes_done(rank.state.bytes_done());
    progress.set_bytes_total(rank.state.bytes_total());
    const absl::Duration idle = context.now - ProgressOf(index, context);
    SetDuration(idle, *progress.mutable_idle());
    progress.set_late(late);
    if (progress.late() || (!rank.begun && (idle >= kNoteAfter || rank.awaited.trainer_gone() <= context.now))) {
      progress.set_note(NamedRanks({index}, context).front().detail);
    }
    if (const Member* member = context.members.Find(index); member != nullptr) progress.set_node(member->node);
  }
  tally.WriteTo(view);
  return view;
}

}  // namespace cairn
