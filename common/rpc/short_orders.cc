#include "common/rpc/short_orders.h"

#include "common/format/checkpoint_path.h"

namespace cairn {

void ShortenOrders(const std::string& job, bool same_plan, v1::SynchronizeAgentResponse& orders) {
  for (v1::SaveOrder& order : *orders.mutable_saves()) {
    if (!order.plan_digest().empty() && order.plan_digest() == orders.current_plan_digest()) {
      order.clear_plan_digest();
      order.set_by_current_plan(true);
    }
    const bool follows =
        order.attempt() > 0 && order.directory() == AttemptDirectory(job, order.step(), order.attempt());
    if (follows) order.clear_directory();
    // The agent writes nothing after the outcome, so it does not need the nonce.
    const bool outcome = order.phase() == v1::Phase::COMMITTED || order.phase() == v1::Phase::ABORTED;
    if (outcome) order.clear_attempt_nonce();
  }
  if (same_plan && !orders.current_plan_digest().empty()) {
    orders.clear_current_plan_digest();
    orders.set_same_current_plan(true);
  }
}

void CompleteOrders(const std::string& job, const std::string& last_plan, v1::SynchronizeAgentResponse& orders) {
  if (orders.same_current_plan()) orders.set_current_plan_digest(last_plan);
  orders.clear_same_current_plan();
  for (v1::SaveOrder& order : *orders.mutable_saves()) {
    if (order.by_current_plan()) order.set_plan_digest(orders.current_plan_digest());
    order.clear_by_current_plan();
    if (order.attempt() > 0 && order.directory().empty()) {
      order.set_directory(AttemptDirectory(job, order.step(), order.attempt()));
    }
  }
}

}  // namespace cairn
