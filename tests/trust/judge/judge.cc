// Judges the states of a training without a cluster, as a coordinator judges the steps that it commits: reads orders
// (state_reader.h), and answers each with a line of JSON, {"jump": "moved farther ...", ...}. Each step builds on the
// one before it, unless its order says otherwise.
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "coordinator/alarms/find_alarms.h"
#include "coordinator/alarms/state_summary.h"
#include "tests/trust/judge/state_reader.h"

int main() {
  std::ios::sync_with_stdio(false);
  std::shared_ptr<const cairn::StateSummary> before;
  std::map<std::string, std::shared_ptr<const cairn::StateSummary>> kept;
  for (;;) {
    const absl::StatusOr<cairn::JudgeOrder> order = cairn::ReadOrder(std::cin);
    if (absl::IsOutOfRange(order.status())) return 0;
    if (!order.ok()) {
      std::fprintf(stderr, "error: %s\n", std::string(order.status().message()).c_str());
      return 1;
    }
    if (order->goes_back) before = kept[order->goes_back_to];
    auto now = std::make_shared<cairn::StateSummary>(cairn::SummaryOf(order->manifest));
    for (size_t i = 0; i < order->zero_shards.size(); ++i) {
      now->shards[i].zeros = now->shards[i].zeros || order->zero_shards[i];
    }
    nlohmann::json answer = nlohmann::json::object();
    for (const cairn::Alarm& alarm : cairn::FindAlarms(before.get(), *now)) answer[alarm.kind] = alarm.message;
    std::cout << answer << std::endl;
    before = now;
    if (!order->keep.empty()) kept[order->keep] = before;
  }
}
