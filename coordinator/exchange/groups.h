// Decides which ranks exchange bytes over NCCL, and when. A group is built in the background when an operation first
// wants one, and is kept while the same agents hold the same ranks. Its number is made of the coordinator's epoch, so
// no group of another coordinator is ever taken for it.
//
//   nothing --Want--> building --the first rank's id--> joining --all have joined--> ready --idle--> nothing
//                         \_____________________________\_________________________\--> broken
//
// After a group has broken, all goes over the host transport for a while, and the reason is told: what broke it is
// likely still there. The next one is built as soon as the membership changes, or after a pause that doubles with each
// group that breaks in one membership.
#ifndef CAIRN_COORDINATOR_EXCHANGE_GROUPS_H_
#define CAIRN_COORDINATOR_EXCHANGE_GROUPS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cairn/v1/agent_coordination_service.pb.h"
#include "coordinator/membership/membership.h"
#include "coordinator/membership/news.h"

namespace cairn {

// Names the policy of the agents that an operation goes by.
enum class ExchangeUse { kLoads, kSaves };

// Says how the bytes of one operation go.
struct ExchangeWay {
  enum class Kind {
    kNone,       // NCCL does not come into question: no agent wants it, or all share memory
    kUndecided,  // the group is being built
    kHost,       // `reason` says why not over NCCL
    kGroup,
  };
  Kind kind = Kind::kNone;
  uint64_t group = 0;
  std::string reason;
  // With kHost: an agent has the policy "require", so the operation cannot go on.
  bool refused = false;
};

// Says what is known of the end of a group.
struct GroupFault {
  std::string why;  // begins with the member that says so
  std::vector<int> ranks;
  // The member names its own worker. Else it names whom it waited for, or nobody, and another member may know better.
  bool certain = false;
};

// The group of one job. It is a function of calls and `now`. Not thread-safe.
class Groups {
 public:
  // A group that is not complete after this time is given up.
  static constexpr absl::Duration kBuildTimeout = absl::Seconds(30);
  // A group that nothing has used for this time is ended, so that the devices' memory is free.
  static constexpr absl::Duration kIdleTimeout = absl::Minutes(1);
  // How long no group is built after one has broken: the first time, and at most.
  static constexpr absl::Duration kFirstPause = absl::Minutes(1);
  static constexpr absl::Duration kLongestPause = absl::Hours(1);
  // Less than this in all is moved over the host transport before a group would be built. Nearly every load
  // between machines has some objects for all ranks.
  static constexpr uint64_t kLeastBytes = uint64_t{1} << 20;

  // `build_timeout` is shorter where ranks are given up sooner that make no progress.
  explicit Groups(uint64_t coordinator_epoch, absl::Duration build_timeout = kBuildTimeout)
      : coordinator_epoch_(coordinator_epoch), build_timeout_(build_timeout) {}

  // An operation of all ranks has begun. Begins to build a group, if one is needed and there is none. `inherited`: it
  // began under an earlier coordinator, so ranks may move its bytes over the host transport already. `bytes`: what is
  // to be moved between ranks that share no memory, where that is known.
  ExchangeWay Want(const Membership& members, bool inherited, absl::Time now,
                   std::optional<uint64_t> bytes = std::nullopt, ExchangeUse use = ExchangeUse::kLoads);
  // Returns for each rank a name for the memory that its agent shares with others, empty if it shares none; and nothing
  // at all if NCCL does not come into question.
  static std::vector<std::string> MemoryOf(const Membership& members, ExchangeUse use = ExchangeUse::kLoads);
  // Returns whether an agent's policy is that an operation fails which cannot go over NCCL.
  static bool SomebodyRequires(const Membership& members, ExchangeUse use);
  // Says how an operation goes that was undecided, now that all its ranks are ready to send. With kGroup the group is
  // that operation's alone until Release: `user` names it for people. Another one goes over the host meanwhile or, if
  // NCCL is required, stays undecided.
  ExchangeWay Settle(const Membership& members, absl::Time now, const std::string& user,
                     ExchangeUse use = ExchangeUse::kLoads);
  // The way of an operation that was undecided, after a rank's agent has said why it cannot take part in an exchange.
  static ExchangeWay RefusedBy(const Member& member, const std::string& why, const Membership& members,
                               ExchangeUse use = ExchangeUse::kLoads);
  // Lets others use the group, because this operation has ended.
  void Release(uint64_t number, const std::string& user);
  // Returns whether all ranks of the group are in it.
  bool IsReady(uint64_t number) const;
  // An operation goes on that uses the group, or waits for it.
  void Use(uint64_t number, absl::Time now);
  // An operation that used the group has failed: nobody knows which bytes are still under way in it.
  void Break(uint64_t number, const std::string& why, absl::Time now);
  // An operation that used the group was cancelled. That is no fault of NCCL's, so the next one may have another group
  // at once.
  void End(uint64_t number);

  // Why the last group has broken; empty if none has in this membership, or one has been in use since and ended well.
  std::string WhyBroken(const Membership& members) const;
  // Returns what a member has said of the end of the group with this number; nothing if it goes on, or nobody has said
  // anything.
  std::optional<GroupFault> FaultOf(uint64_t number) const;

  // Takes what a member has reported.
  News Apply(const Member& member, absl::Time now);
  // Does what follows from the membership and the time.
  News Advance(const Membership& members, absl::Time now);
  bool empty() const { return !group_.has_value(); }

  // Adds the orders of a rank's agent.
  void AddTo(const Member& member, v1::SynchronizeAgentResponse& response) const;

 private:
  struct Group {
    uint64_t number = 0;
    uint64_t membership_epoch = 0;
    std::vector<uint64_t> incarnations;  // of the agents, by rank
    std::vector<bool> joined;            // by rank
    std::string unique_id;
    absl::Time begun;
    absl::Time used;
    bool ready = false;
    std::string user;  // names the operation that has it; empty for none
  };
  struct Breakage {
    uint64_t number = 0;
    GroupFault fault;
    bool told = false;  // by a member
    uint64_t membership_epoch = 0;
    absl::Duration pause;
    absl::Time until;
  };

  static bool SomebodyWants(const Membership& members, ExchangeUse use);
  // Returns whether some bytes cannot go through shared memory.
  static bool NeedsTransport(const Membership& members);
  // Why the ranks may not, or cannot, have a group; empty if they may.
  static std::string Refusal(const Membership& members, ExchangeUse use);
  static ExchangeWay OverHost(const Membership& members, ExchangeUse use, std::string reason);
  // The same, because the last group has broken.
  static ExchangeWay OverHostForNow(const Membership& members, ExchangeUse use, const Breakage& broken);
  static GroupFault FaultBy(const Member& member, const v1::GroupState& state);
  // Takes what a member says of a group that has broken already. Returns whether it says who is at fault for sure.
  bool LearnWhy(const Member& member);
  // `told`: a member has said so.
  void GiveUp(GroupFault fault, bool told, absl::Time now);

  const uint64_t coordinator_epoch_;
  const absl::Duration build_timeout_;
  uint64_t last_number_ = 0;
  std::optional<Group> group_;
  // Tells of the last group that broke, until one that is ready ends unused.
  std::optional<Breakage> broken_;
};

}  // namespace cairn

#endif  // CAIRN_COORDINATOR_EXCHANGE_GROUPS_H_
