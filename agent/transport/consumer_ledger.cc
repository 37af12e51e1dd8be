#include "agent/transport/consumer_ledger.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace cairn {

ConsumerLedger::ConsumerLedger(const v1::ReadPlan& plan, uint64_t window_bytes) : window_bytes_(window_bytes) {
  std::map<uint32_t, size_t> by_rank;
  for (const v1::Copy& copy : plan.copies()) {
    const auto [known, is_new] = by_rank.emplace(copy.source_rank(), sources_.size());
    if (is_new) sources_.emplace_back().rank = copy.source_rank();
    sources_[known->second].copies[copy.round()].push_back(copy);
  }
  for (Source& source : sources_) {
    for (const auto& [round, copies] : source.copies) source.rounds.push_back(round);
    to_come_ += source.rounds.size();
  }
}

std::optional<uint32_t> ConsumerLedger::NextRound(size_t source) const {
  const Source& asked = sources_[source];
  if (asked.next == asked.rounds.size()) return std::nullopt;
  return asked.rounds[asked.next];
}

uint32_t ConsumerLedger::ReleasedBelow(size_t source) const {
  const Source& told = sources_[source];
  if (!told.held.empty()) return *told.held.begin();
  return NextRound(source).value_or(told.rounds.back() + 1);
}

std::optional<std::vector<v1::Copy>> ConsumerLedger::TakeRound(size_t source, uint32_t round) {
  if (NextRound(source) != round) return std::nullopt;
  Source& from = sources_[source];
  ++from.next;
  from.held.insert(round);
  return std::move(from.copies.extract(round).mapped());
}

uint64_t ConsumerLedger::AddMapped(size_t source, uint32_t round, v1::LoadBatch batch) {
  return AddReady({.source = source, .round = round, .mapped = true}, std::move(batch));
}

void ConsumerLedger::AddLent(size_t source, uint32_t round, v1::LoadBatch batch, std::vector<v1::Copy> copies) {
  ++unread_;
  ++to_come_;  // AddReady takes it for one that has come
  AddReady({.source = source, .round = round, .lent = true, .copies = std::move(copies)}, std::move(batch));
}

std::optional<ConsumerLedger::Place> ConsumerLedger::TakeRead(uint64_t batch) {
  const auto found = out_.find(batch);
  if (found == out_.end() || !found->second.lent || std::exchange(found->second.read, true)) return std::nullopt;
  return Place{found->second.source, found->second.round};
}

void ConsumerLedger::AcceptRead(uint64_t batch) {
  const auto accepted = out_.extract(batch);
  sources_[accepted.mapped().source].held.erase(accepted.mapped().round);
  --unread_;
  --to_come_;
}

std::vector<v1::Copy> ConsumerLedger::RefuseRead(uint64_t batch) {
  --unread_;
  return std::move(out_.extract(batch).mapped().copies);
}

uint64_t ConsumerLedger::largest_window() const { return std::max<uint64_t>(window_bytes_ / 2, uint64_t{1} << 20); }

void ConsumerLedger::ExpectWindows(size_t source, uint32_t round, size_t windows) {
  sources_[source].unfilled[round] = windows;
  to_come_ += windows - 1;  // the round itself was counted as one
}

ConsumerLedger::Filled ConsumerLedger::AddFilled(size_t source, uint32_t round, uint64_t window_bytes,
                                                 v1::LoadBatch batch) {
  Filled filled;
  filled.batch = AddReady({.source = source, .round = round, .window_bytes = window_bytes}, std::move(batch));
  Source& from = sources_[source];
  const auto unfilled = from.unfilled.find(round);
  if (--unfilled->second > 0) return filled;
  from.unfilled.erase(unfilled);
  from.held.erase(round);
  filled.round_released = true;
  return filled;
}

uint64_t ConsumerLedger::AddReady(Batch where, v1::LoadBatch batch) {
  const uint64_t number = next_batch_++;
  batch.set_batch(number);
  ready_.push_back(std::move(batch));
  out_.emplace(number, std::move(where));
  --to_come_;
  return number;
}

std::optional<ConsumerLedger::Received> ConsumerLedger::TakeReady() {
  if (ready_.empty() && to_come_ > 0) return std::nullopt;
  Received received;
  received.batches.assign(std::make_move_iterator(ready_.begin()), std::make_move_iterator(ready_.end()));
  received.complete = to_come_ == 0;
  ready_.clear();
  return received;
}

void ConsumerLedger::PutBack(std::vector<v1::LoadBatch> batches) {
  ready_.insert(ready_.begin(), std::make_move_iterator(batches.begin()), std::make_move_iterator(batches.end()));
}

std::optional<size_t> ConsumerLedger::Release(uint64_t batch) {
  const auto found = out_.find(batch);
  if (found == out_.end() || found->second.lent) return std::nullopt;
  const auto released = out_.extract(found);
  const Batch& was = released.mapped();
  if (!was.mapped) {
    windows_out_ -= was.window_bytes;
    return std::nullopt;
  }
  sources_[was.source].held.erase(was.round);
  return was.source;
}

std::vector<uint64_t> ConsumerLedger::DropReady() {
  ready_.clear();
  std::vector<uint64_t> batches;
  for (const auto& [number, where] : out_) batches.push_back(number);
  return batches;
}

}  // namespace cairn
