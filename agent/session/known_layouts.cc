#include "agent/session/known_layouts.h"

#include <utility>

namespace cairn {
namespace {

// Besides those in use.
constexpr size_t kKeptLayouts = 8;

}  // namespace

void KnownLayouts::Add(RankLayoutPtr layout, const InUse& in_use) {
  const std::string digest = layout->digest;
  if (!layouts_.emplace(digest, std::move(layout)).second) std::erase(order_, digest);
  order_.push_back(digest);
  size_t idle = 0;
  for (auto known = order_.rbegin(); known != order_.rend(); ++known) {
    if (!in_use(*known) && ++idle > kKeptLayouts) layouts_.erase(*known);
  }
  std::erase_if(order_, [&](const std::string& known) { return !layouts_.contains(known); });
}

RankLayoutPtr KnownLayouts::Find(const std::string& digest) const {
  const auto layout = layouts_.find(digest);
  return layout == layouts_.end() ? nullptr : layout->second;
}

}  // namespace cairn
