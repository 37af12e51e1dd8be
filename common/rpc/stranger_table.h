// Decides which connections of strangers are kept: which are let in, which make room for them, and when each must end.
//
// A stranger is a connection that has not proven itself. Strangers are many or few as an attacker likes, so what they
// may hold is bounded here, and the bound is shared fairly: they are counted by group (an address, or the other users
// of this machine), and it is always the largest group that makes room. So whoever opens many connections shuts out
// nobody but his own group.
#ifndef CAIRN_COMMON_RPC_STRANGER_TABLE_H_
#define CAIRN_COMMON_RPC_STRANGER_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"

namespace cairn {

// Each call costs a logarithm of the table's size. Not thread-safe.
class StrangerTable {
 public:
  // Numbers rise with each stranger and are never used twice.
  using Number = uint64_t;

  struct Limits {
    size_t most = 0;
    // A stranger is given up after this time.
    absl::Duration longest;
    // One that has begun to speak keeps its place for so long against newcomers of its own group. A true peer needs
    // two round trips to prove itself, and many peers may come at once from one address.
    absl::Duration least;
  };

  struct Admission {
    std::optional<Number> admitted;  // nothing: the newcomer is refused
    std::optional<Number> evicted;   // this one made room; the table has forgotten it
  };

  explicit StrangerTable(Limits limits) : limits_(limits) {}

  // A newcomer asks for a place. If there is none, somebody of the largest group goes: its oldest silent stranger, or
  // else its oldest one. The newcomer itself is refused if its own group would not be smaller than that one, and all of
  // that one have begun to speak and came within Limits::least.
  Admission Admit(std::string_view group, absl::Time now);
  // A stranger has sent the first message of a proof, or of a call.
  void Spoke(Number number);
  // A stranger is none any more, or has gone. Nothing happens if it was forgotten before.
  void Remove(Number number);

  // Forgets and returns those whose time is over.
  std::vector<Number> TakeExpired(absl::Time now);
  // Returns when the next one expires; InfiniteFuture if there is none.
  absl::Time NextExpiry() const;

  size_t size() const { return strangers_.size(); }

 private:
  struct Stranger {
    std::string group;
    absl::Time since;
    bool silent = true;
  };
  struct Group {
    std::set<Number> silent, speaking;  // the oldest first
    size_t size() const { return silent.size() + speaking.size(); }
  };

  // Who makes room for a newcomer of `group`; nothing if the newcomer itself has to go.
  std::optional<Number> Victim(const std::string& group, absl::Time now) const;
  void Resize(const std::string& group, const Group& changed, size_t before);

  const Limits limits_;
  std::map<Number, Stranger> strangers_;  // in the order of their coming, and so of their end
  absl::flat_hash_map<std::string, Group> groups_;
  std::set<std::pair<size_t, std::string>> by_size_;
  std::set<Number> silent_;  // of all groups
  Number last_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_STRANGER_TABLE_H_
