// The layouts that the agent holds, so that calls may name them by digest.
#ifndef CAIRN_AGENT_SESSION_KNOWN_LAYOUTS_H_
#define CAIRN_AGENT_SESSION_KNOWN_LAYOUTS_H_

#include <deque>
#include <functional>
#include <map>
#include <string>

#include "agent/session/rank_layout.h"

namespace cairn {

// Not thread-safe.
class KnownLayouts {
 public:
  using InUse = std::function<bool(const std::string& digest)>;

  // Adds a layout, and forgets old ones: of those that are not in use, the eight that were added last stay for calls to
  // come.
  void Add(RankLayoutPtr layout, const InUse& in_use);
  // Returns null if the layout is not known.
  RankLayoutPtr Find(const std::string& digest) const;

 private:
  std::map<std::string, RankLayoutPtr> layouts_;
  std::deque<std::string> order_;  // the one that was added last is the last
};

}  // namespace cairn

#endif  // CAIRN_AGENT_SESSION_KNOWN_LAYOUTS_H_
