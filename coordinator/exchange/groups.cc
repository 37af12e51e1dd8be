#include "coordinator/exchange/groups.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/duration_text.h"
#include "common/base/printable.h"
#include "common/process/quantity.h"

namespace cairn {
namespace {

using v1::GroupState;
using v1::NcclSupport;

// NCCL demands this length.
constexpr size_t kUniqueIdBytes = 128;
constexpr size_t kMostErrorBytes = 300;
// A step with all of a rank's peers must fit into one packet to its worker.
constexpr size_t kMostRanks = 1024;

std::string VersionText(int version) {
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

NcclSupport::Policy PolicyOf(const Member& member, ExchangeUse use) {
  return use == ExchangeUse::kLoads ? member.nccl.policy() : member.nccl.saves_policy();
}

bool Wants(const Member& member, ExchangeUse use) {
  const NcclSupport::Policy policy = PolicyOf(member, use);
  return policy == NcclSupport::AUTO || policy == NcclSupport::REQUIRE;
}

std::string NameOf(int rank, const Member& member) {
  return member.node.empty() ? absl::StrCat("rank ", rank) : absl::StrCat("rank ", rank, " on ", member.node);
}

// What keeps a rank out of a group.
enum class Trouble { kNone, kNever, kNoVersion, kOtherVersion };

// The ranks with one trouble.
struct Troubled {
  const Member* first = nullptr;
  size_t others = 0;

  void Add(const Member& member) {
    if (first != nullptr) return static_cast<void>(++others);
    first = &member;
  }
  // "rank 3 on n3", "rank 3 on n3 and 2 others"
  std::string Name() const {
    const std::string name = NameOf(first->rank, *first);
    return others == 0 ? name : absl::StrCat(name, " and ", others, others == 1 ? " other" : " others");
  }
  std::string Has() const { return absl::StrCat(Name(), others == 0 ? " has" : " have"); }
};

// A text that an agent has sent.
std::string Shown(std::string_view text) { return std::string(CutText(Printable(text), kMostErrorBytes)); }

}  // namespace

bool Groups::SomebodyWants(const Membership& members, ExchangeUse use) {
  for (const auto& [rank, member] : members.members()) {
    if (Wants(member, use)) return true;
  }
  return false;
}

std::vector<std::string> Groups::MemoryOf(const Membership& members, ExchangeUse use) {
  std::vector<std::string> memory;
  if (!SomebodyWants(members, use) || !members.complete() || !NeedsTransport(members)) return memory;
  for (const auto& [rank, member] : members.members()) {
    memory.push_back(member.nccl.shared_memory() ? member.boot_id : "");
  }
  return memory;
}

bool Groups::NeedsTransport(const Membership& members) {
  const Member* first = nullptr;
  for (const auto& [rank, member] : members.members()) {
    if (first == nullptr) {
      first = &member;
    } else if (member.boot_id != first->boot_id || !member.nccl.shared_memory() || !first->nccl.shared_memory()) {
      return true;
    }
  }
  return false;
}

bool Groups::SomebodyRequires(const Membership& members, ExchangeUse use) {
  for (const auto& [rank, member] : members.members()) {
    if (PolicyOf(member, use) == NcclSupport::REQUIRE) return true;
  }
  return false;
}

std::string Groups::Refusal(const Membership& members, ExchangeUse use) {
  if (members.world_size() > static_cast<int>(kMostRanks)) {
    return absl::StrCat("a group has at most ", kMostRanks, " ranks");
  }
  const auto range = members.members();
  const Member& first = *members.Find(0);  // there are all
  const auto trouble_of = [&](const Member& member) {
    if (!Wants(member, use)) return Trouble::kNever;
    if (member.nccl.version() <= 0) return Trouble::kNoVersion;
    return member.nccl.version() == first.nccl.version() ? Trouble::kNone : Trouble::kOtherVersion;
  };
  Troubled troubled;
  Trouble trouble = Trouble::kNone;
  for (const auto& [rank, member] : range) {
    const Trouble its = trouble_of(member);
    if (its == Trouble::kNone) continue;
    if (trouble == Trouble::kNone) trouble = its;
    const bool alike = its != Trouble::kOtherVersion || troubled.first == nullptr ||
                       member.nccl.version() == troubled.first->nccl.version();
    if (its == trouble && alike) troubled.Add(member);
  }
  switch (trouble) {
    case Trouble::kNever:
      return absl::StrCat(troubled.Has(), " --nccl", use == ExchangeUse::kSaves ? "-saves" : "", "=never");
    case Trouble::kNoVersion: {
      const std::string& error = troubled.first->nccl.error();
      return absl::StrCat(troubled.Name(), ": ", error.empty() ? "no version of NCCL" : Shown(error));
    }
    case Trouble::kOtherVersion:
      return absl::StrCat(NameOf(first.rank, first), " has NCCL ", VersionText(first.nccl.version()), ", ",
                          troubled.Has(), " ", VersionText(troubled.first->nccl.version()));
    case Trouble::kNone:
      break;
  }
  bool several = false;
  Troubled untrusting;
  for (const auto& [rank, member] : range) {
    several = several || member.boot_id != first.boot_id;
    if (!member.nccl.trusted_network()) untrusting.Add(member);
  }
  if (several && untrusting.first != nullptr) {
    return absl::StrCat("the ranks are on several machines, and ", untrusting.Has(), " no --nccl-trusted-network");
  }
  return "";
}

ExchangeWay Groups::OverHost(const Membership& members, ExchangeUse use, std::string reason) {
  return {ExchangeWay::Kind::kHost, 0, std::move(reason), SomebodyRequires(members, use)};
}

ExchangeWay Groups::OverHostForNow(const Membership& members, ExchangeUse use, const Breakage& broken) {
  return OverHost(members, use, absl::StrCat(broken.fault.why, "; tried again after ", DurationText(broken.pause)));
}

ExchangeWay Groups::Want(const Membership& members, bool inherited, absl::Time now, std::optional<uint64_t> bytes,
                         ExchangeUse use) {
  (void)Advance(members, now);  // a job does so at the begin of each step, and tells the news
  const auto range = members.members();
  if (bytes == uint64_t{0} || !SomebodyWants(members, use) || !members.complete() || !NeedsTransport(members)) {
    return {};
  }
  if (std::string refusal = Refusal(members, use); !refusal.empty()) return OverHost(members, use, std::move(refusal));
  if (inherited) return OverHost(members, use, "the coordinator has restarted");
  if (!group_.has_value()) {
    if (broken_.has_value() && broken_->membership_epoch == members.epoch() && now < broken_->until) {
      return OverHostForNow(members, use, *broken_);
    }
    if (bytes.has_value() && *bytes < kLeastBytes && !SomebodyRequires(members, use)) {
      return OverHost(members, use, absl::StrCat("only ", FormatSize(static_cast<int64_t>(*bytes)), " to move"));
    }
    Group group;
    group.number = (coordinator_epoch_ << 32) + ++last_number_;
    group.membership_epoch = members.epoch();
    for (const auto& [rank, member] : range) group.incarnations.push_back(member.incarnation);
    group.joined.resize(group.incarnations.size());
    group.begun = now;
    group_ = std::move(group);
  }
  group_->used = now;
  return {ExchangeWay::Kind::kUndecided, group_->number, "", false};
}

ExchangeWay Groups::Settle(const Membership& members, absl::Time now, const std::string& user, ExchangeUse use) {
  (void)Advance(members, now);  // a job does so at the begin of each step, and tells the news
  if (!group_.has_value()) {
    if (broken_.has_value() && broken_->membership_epoch == members.epoch()) {
      return OverHostForNow(members, use, *broken_);
    }
    return OverHost(members, use, "the agents have changed meanwhile");
  }
  group_->used = now;
  ExchangeWay undecided = {ExchangeWay::Kind::kUndecided, group_->number, "", false};
  if (!group_->ready) return undecided;
  if (!group_->user.empty() && group_->user != user) {
    if (SomebodyRequires(members, use)) return undecided;
    return OverHost(members, use, absl::StrCat(group_->user, " uses the group"));
  }
  group_->user = user;
  return {ExchangeWay::Kind::kGroup, group_->number, "", false};
}

ExchangeWay Groups::RefusedBy(const Member& member, const std::string& why, const Membership& members,
                              ExchangeUse use) {
  return OverHost(members, use, absl::StrCat(NameOf(member.rank, member), ": ", Shown(why)));
}

void Groups::Release(uint64_t number, const std::string& user) {
  if (group_.has_value() && group_->number == number && group_->user == user) group_->user.clear();
}

bool Groups::IsReady(uint64_t number) const { return group_.has_value() && group_->number == number && group_->ready; }

void Groups::Use(uint64_t number, absl::Time now) {
  if (group_.has_value() && group_->number == number) group_->used = now;
}

void Groups::Break(uint64_t number, const std::string& why, absl::Time now) {
  if (group_.has_value() && group_->number == number) GiveUp({why, {}, false}, false, now);
}

void Groups::End(uint64_t number) {
  if (group_.has_value() && group_->number == number) group_.reset();
}

std::string Groups::WhyBroken(const Membership& members) const {
  return broken_.has_value() && broken_->membership_epoch == members.epoch() ? broken_->fault.why : "";
}

std::optional<GroupFault> Groups::FaultOf(uint64_t number) const {
  if (!broken_.has_value() || broken_->number != number || !broken_->told) return std::nullopt;
  return broken_->fault;
}

GroupFault Groups::FaultBy(const Member& member, const GroupState& state) {
  GroupFault fault;
  fault.why = absl::StrCat(NameOf(member.rank, member), ": ", Shown(state.error()));
  for (const uint32_t rank : state.faulty_ranks()) {
    if (rank < kMostRanks && fault.ranks.size() < kMostRanks) fault.ranks.push_back(static_cast<int>(rank));
  }
  fault.certain = fault.ranks == std::vector<int>{member.rank};
  return fault;
}

bool Groups::LearnWhy(const Member& member) {
  if (!broken_.has_value() || broken_->fault.certain) return false;
  const auto& states = member.state.groups();
  const auto state = std::find_if(states.begin(), states.end(),
                                  [&](const GroupState& each) { return each.number() == broken_->number; });
  if (state == states.end() || state->phase() != GroupState::BROKEN) return false;
  GroupFault fault = FaultBy(member, *state);
  if (!fault.certain && broken_->told) return false;
  broken_->fault = std::move(fault);
  broken_->told = true;
  return true;
}

void Groups::GiveUp(GroupFault fault, bool told, absl::Time now) {
  const bool again = broken_.has_value() && broken_->membership_epoch == group_->membership_epoch;
  const absl::Duration pause = again ? std::min(2 * broken_->pause, kLongestPause) : kFirstPause;
  broken_ = {group_->number, std::move(fault), told, group_->membership_epoch, pause, now + pause};
  group_.reset();
}

News Groups::Apply(const Member& member, absl::Time now) {
  if (!group_.has_value()) return News::Urgent(LearnWhy(member));
  const size_t rank = static_cast<size_t>(member.rank);
  if (rank >= group_->incarnations.size() || group_->incarnations[rank] != member.incarnation) return {};
  const auto& states = member.state.groups();
  const auto state = std::find_if(states.begin(), states.end(),
                                  [&](const GroupState& each) { return each.number() == group_->number; });
  if (state == states.end()) {
    // It has not heard of the group, or was told of its end by another coordinator.
    if (!group_->joined[rank]) return {};
    GiveUp({absl::StrCat(NameOf(member.rank, member), " has left the group"), {member.rank}, false}, true, now);
    return News::Urgent();
  }
  switch (state->phase()) {
    case GroupState::BUILDING:
      if (rank != 0 || !group_->unique_id.empty() || state->unique_id().size() != kUniqueIdBytes) return {};
      group_->unique_id = state->unique_id();
      return News::Urgent();
    case GroupState::READY: {
      if (group_->unique_id.empty() || group_->joined[rank]) return {};
      group_->joined[rank] = true;
      const bool all = std::all_of(group_->joined.begin(), group_->joined.end(), [](bool joined) { return joined; });
      group_->ready = all;
      return News::Urgent(all);
    }
    case GroupState::BROKEN:
      GiveUp(FaultBy(member, *state), true, now);
      return News::Urgent();
    default:
      return {};
  }
}

News Groups::Advance(const Membership& members, absl::Time now) {
  if (!group_.has_value()) return {};
  if (members.epoch() != group_->membership_epoch) {
    group_.reset();  // others hold the ranks now: a new group may be built at once
    return News::Urgent();
  }
  if (!group_->ready && now - group_->begun >= build_timeout_) {
    std::string missing;
    size_t count = 0;
    for (size_t rank = 0; rank < group_->joined.size() && missing.size() < kMostErrorBytes; ++rank) {
      if (!group_->joined[rank]) absl::StrAppend(&missing, count++ == 0 ? "" : ", ", rank);
    }
    GiveUp({absl::StrCat("the group was not complete within ", DurationText(build_timeout_),
                         count == 1 ? ": rank " : ": ranks ", missing, count == 1 ? " has" : " have", " not joined"),
            {},
            false},
           false, now);
    return News::Urgent();
  }
  if (group_->ready && now - group_->used >= kIdleTimeout) {
    group_.reset();
    broken_.reset();  // it has served without a fault
    return News::Urgent();
  }
  return {};
}

void Groups::AddTo(const Member& member, v1::SynchronizeAgentResponse& response) const {
  const size_t rank = static_cast<size_t>(member.rank);
  if (!group_.has_value() || rank >= group_->incarnations.size() || group_->incarnations[rank] != member.incarnation) {
    return;
  }
  v1::GroupOrder& order = *response.add_groups();
  order.set_number(group_->number);
  for (uint32_t each = 0; each < group_->incarnations.size(); ++each) order.add_ranks(each);
  order.set_unique_id(group_->unique_id);
}

}  // namespace cairn
