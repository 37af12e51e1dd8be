// Decides which connections of strangers are kept: which newcomers are admitted, which are evicted for them, and when
// each one expires.
//
// A stranger is a connection that has not proven itself. An attacker can open any number of connections, so the number
// of strangers is limited. The places are shared fairly between groups (an address, or the other users of this
// machine): a stranger of the largest group is evicted first. So an attacker with many connections only displaces
// connections of his own group.
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
  // Identifies a stranger. Numbers ascend and are never used twice.
  using Number = uint64_t;

  struct Limits {
    size_t most = 0;
    // A stranger expires after this time.
    absl::Duration longest;
    // For this time a stranger that has sent its first message is not evicted for a newcomer of its own group. A peer
    // needs two round trips to prove itself, and many peers may connect at once from one address.
    absl::Duration least;
  };

  struct Admission {
    std::optional<Number> admitted;  // nothing: the newcomer is refused
    std::optional<Number> evicted;   // this one was removed to make room
  };

  explicit StrangerTable(Limits limits) : limits_(limits) {}

  // Admits a newcomer of `group` if possible. If all places are taken, a stranger of the largest group is evicted: its
  // oldest silent one, or else its oldest one. The newcomer is refused instead if no stranger of the largest group is
  // silent, the oldest one came within Limits::least, and with the newcomer its own group would be at least as large.
  Admission Admit(std::string_view group, absl::Time now);
  // Records that a stranger has sent the first message of a proof or of a call.
  void Spoke(Number number);
  // Removes a stranger that has proven itself or whose connection has ended. Does nothing if it was removed before.
  void Remove(Number number);

  // Removes and returns the strangers that have expired.
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

  // Returns the stranger to evict for a newcomer of `group`; nothing if the newcomer must be refused.
  std::optional<Number> Victim(const std::string& group, absl::Time now) const;
  void Resize(const std::string& group, const Group& changed, size_t before);

  const Limits limits_;
  std::map<Number, Stranger> strangers_;  // in the order of arrival, which is also the order of expiry
  absl::flat_hash_map<std::string, Group> groups_;
  std::set<std::pair<size_t, std::string>> by_size_;
  std::set<Number> silent_;  // of all groups
  Number last_ = 0;
};

}  // namespace cairn

#endif  // CAIRN_COMMON_RPC_STRANGER_TABLE_H_
