#include "coordinator/load/testing/exchange_ways.h"

#include "absl/strings/str_cat.h"

namespace cairn {
namespace {

bool IsDecided(const v1::Exchange& exchange) {
  return exchange.way() == v1::Exchange::HOST || exchange.way() == v1::Exchange::GROUP;
}

}  // namespace

std::string ExchangeWays::Take(int rank, uint64_t epoch, const v1::LoadOrder& order) {
  std::map<int, Way>& ways = ways_[order.transfer_token()];
  Way& way = ways[rank];
  if (IsDecided(way.exchange)) return "";
  way = {epoch, order.exchange()};
  if (!IsDecided(way.exchange)) return "";
  for (const auto& [other, known] : ways) {
    if (known.epoch != epoch || !IsDecided(known.exchange)) continue;
    if (known.exchange.way() != way.exchange.way() || known.exchange.group() != way.exchange.group()) {
      return absl::StrCat("ranks ", rank, " and ", other, " go different ways");
    }
  }
  return "";
}

std::string ExchangeWays::TakeId(const v1::GroupOrder& order) {
  const auto [known, first] = group_ids_.emplace(order.number(), order.unique_id());
  return known->second == order.unique_id() ? "" : "a group has two ids";
}

v1::Exchange ExchangeWays::WayOf(const std::string& token, int rank) const {
  const auto ways = ways_.find(token);
  if (ways == ways_.end()) return {};
  const auto way = ways->second.find(rank);
  return way == ways->second.end() ? v1::Exchange() : way->second.exchange;
}

bool ExchangeWays::AllGoBy(uint64_t group, const std::string& token, int ranks) const {
  for (int rank = 0; rank < ranks; ++rank) {
    if (WayOf(token, rank).group() != group) return false;
  }
  return true;
}

}  // namespace cairn
