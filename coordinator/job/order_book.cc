#include "coordinator/job/order_book.h"

#include <algorithm>
#include <utility>

namespace cairn {

void OrderBook::WakeAll() {
  woken_.all = true;
  ++version_;
}

void OrderBook::Wake(int rank) {
  ++orders_.At(static_cast<size_t>(rank)).own_version;
  woken_.ranks.push_back(rank);
}

OrderBook::Woken OrderBook::TakeWoken() { return std::exchange(woken_, {}); }

uint64_t OrderBook::version(int rank) const { return version_ + orders_[static_cast<size_t>(rank)].own_version; }

uint64_t OrderBook::Keep(const Member& member, std::string orders, std::vector<uint64_t> news, uint64_t& revision) {
  Orders& kept = orders_.At(static_cast<size_t>(member.rank));
  if (kept.incarnation != member.incarnation ||
      !std::includes(kept.news.begin(), kept.news.end(), news.begin(), news.end())) {
    kept.incarnation = member.incarnation;
    kept.revision = ++revision;
  }
  kept.bytes = std::move(orders);
  kept.news = std::move(news);
  kept.made_version = version(member.rank);
  kept.made_changes = member.changes;
  return kept.revision;
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
  return orders == nullptr ? nullptr : &orders->bytes;
}

}  // namespace cairn
