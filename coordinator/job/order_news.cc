#include "coordinator/job/order_news.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/hash/hash.h"

namespace cairn {
namespace {

// Tells equal bytes of different fields apart.
enum class Field { kPlan, kGroups, kLayout, kArm, kSave, kLoad };

uint64_t Fingerprint(Field field, const std::string& bytes) {
  return absl::Hash<std::pair<int, std::string>>{}({static_cast<int>(field), bytes});
}

bool StagesBy(const v1::SaveOrder& order, const v1::AgentState& state) {
  return std::any_of(state.saves().begin(), state.saves().end(), [&](const v1::SaveState& save) {
    return save.step() == order.step() && !save.plan_digest().empty() && save.plan_digest() == order.plan_digest();
  });
}

bool IsNews(const v1::SaveOrder& order, const v1::AgentState& state) {
  if (order.has_stalled() || !order.request_id().empty()) return true;
  if (order.phase() == v1::Phase::WAITING) return order.attempt() != 0;
  return order.phase() != v1::Phase::STAGING || !StagesBy(order, state);
}

}  // namespace

std::vector<uint64_t> NewsIn(const v1::SynchronizeAgentResponse& orders, const v1::AgentState& state) {
  v1::SynchronizeAgentResponse plan;  // the agent acts on its absence too
  plan.set_current_plan_digest(orders.current_plan_digest());
  plan.set_check_replicas(orders.check_replicas());
  plan.set_sample_replicas(orders.sample_replicas());
  // A trainer that calls `prepare` again with the layout that it has waits to hear that its call is known here.
  plan.set_revision(state.trainer().prepare_calls());
  if (orders.has_current_plan_error()) *plan.mutable_current_plan_error() = orders.current_plan_error();
  v1::SynchronizeAgentResponse groups;  // likewise: it ends every other one at once
  *groups.mutable_groups() = orders.groups();
  std::vector<uint64_t> news = {Fingerprint(Field::kPlan, plan.SerializeAsString()),
                                Fingerprint(Field::kGroups, groups.SerializeAsString())};
  for (const std::string& digest : orders.wanted_layouts()) news.push_back(Fingerprint(Field::kLayout, digest));
  if (orders.has_arm()) news.push_back(Fingerprint(Field::kArm, orders.arm().SerializeAsString()));
  for (const v1::SaveOrder& order : orders.saves()) {
    if (IsNews(order, state)) news.push_back(Fingerprint(Field::kSave, order.SerializeAsString()));
  }
  for (const v1::LoadOrder& order : orders.loads()) {
    if (order.phase() == v1::Phase::WAITING) continue;
    news.push_back(Fingerprint(Field::kLoad, order.SerializeAsString()));
  }
  std::sort(news.begin(), news.end());
  return news;
}

}  // namespace cairn
