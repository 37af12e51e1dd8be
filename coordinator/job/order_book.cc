#include "coordinator/job/order_book.h"

#include <algorithm>
#include <utility>

namespace cairn {

void OrderBook::WakeAll() {
  woken_.all = true;
  ++wakes_;
  ++version_;
}

void OrderBook::Wake(int rank) {
  ++orders_.At(static_cast<size_t>(rank)).own_wakes;
  woken_.ranks.push_back(rank);
}

OrderBook::Woken OrderBook::TakeWoken() { return std::exchange(woken_, {}); }

uint64_t OrderBook::version(int rank) const { return version_ + orders_[static_cast<size_t>(rank)].own_wakes; }

uint64_t OrderBook::Keep(const Member& member, Made made, uint64_t& revision) {
  Orders& kept = orders_.At(static_cast<size_t>(member.rank));
  if (kept.incarnation != member.incarnation ||
      !std::includes(kept.made.news.begin(), kept.made.news.end(), made.news.begin(), made.news.end())) {
    kept.incarnation = member.incarnation;
    kept.revision = ++revision;
  }
  kept.made = std::move(made);
  kept.made_version = version(member.rank);
  kept.made_wakes = wakes(member.rank);
  kept.made_changes = member.changes;
  return kept.revision;
}

bool OrderBook::KnowsPlan(const Member& member, uint64_t known, const std::string& plan) const {
  const Orders& kept = orders_[static_cast<size_t>(member.rank)];
  return known != 0 && kept.incarnation == member.incarnation && kept.revision == known && kept.made.plan == plan;
}

const std::vector<uint64_t>* OrderBook::NewsToldTo(const Member& member) const {
  const Orders& kept = orders_[static_cast<size_t>(member.rank)];
  const bool asleep = kept.incarnation == member.incarnation && kept.made_changes == member.changes &&
                      kept.made_wakes == wakes(member.rank);
  return asleep ? &kept.made.news : nullptr;
}

const OrderBook::Orders* OrderBook::CurrentEntry(const Member& member) const {
  const Orders& orders = orders_[static_cast<size_t>(member.rank)];
  const bool current = orders.incarnation == member.incarnation && orders.made_changes == member.changes &&
                       orders.made_version == version(member.rank);
  return current ? &orders : nullptr;
}

bool OrderBook::Knows(const Member& member, uint64_t known) const {
  const Orders* orders = CurrentEntry(member);
  return orders != nullptr && orders->revision <= known;
}

const std::string* OrderBook::Current(const Member& member) const {
  const Orders* orders = CurrentEntry(member);
  return orders == nullptr ? nullptr : &orders->made.bytes;
}

}  // namespace cairn
