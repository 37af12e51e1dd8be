#include "coordinator/job/order_book.h"

#include <algorithm>
#include <utility>

namespace cairn {

void OrderBook::Take(const News& news) {
  if (news.orders != News::Orders::kSame) ++version_;
  for (const int rank : news.ranks) orders_.At(static_cast<size_t>(rank)).made_version = 0;
}

uint64_t OrderBook::Keep(const Member& member, std::string plan, std::vector<uint64_t> news) {
  Orders& kept = orders_.At(static_cast<size_t>(member.rank));
  if (kept.incarnation != member.incarnation ||
      !std::includes(kept.news.begin(), kept.news.end(), news.begin(), news.end())) {
    kept.incarnation = member.incarnation;
    kept.revision = ++last_revision_;
  }
  kept.plan = std::move(plan);
  kept.news = std::move(news);
  kept.made_version = version_;
  kept.made_changes = member.changes;
  return kept.revision;
}

bool OrderBook::KnowsPlan(const Member& member, uint64_t known, const std::string& plan) const {
  const Orders& kept = orders_[static_cast<size_t>(member.rank)];
  return known != 0 && kept.incarnation == member.incarnation && kept.revision == known && kept.plan == plan;
}

bool OrderBook::Knows(const Member& member, uint64_t known) const {
  const Orders& kept = orders_[static_cast<size_t>(member.rank)];
  return kept.incarnation == member.incarnation && kept.made_changes == member.changes &&
         kept.made_version == version_ && kept.revision <= known;
}

}  // namespace cairn
