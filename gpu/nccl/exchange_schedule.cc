#include "gpu/nccl/exchange_schedule.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace cairn {

uint64_t ExchangeStep::bytes(bool send) const {
  uint64_t total = 0;
  for (const ExchangeTransfer& transfer : transfers) total += transfer.send == send ? transfer.bytes : 0;
  return total;
}

std::vector<ExchangeStep> MakeSchedule(const std::vector<ExchangeTransfer>& transfers) {
  std::vector<ExchangeTransfer> sorted;
  for (const ExchangeTransfer& transfer : transfers) {
    if (transfer.bytes > 0) sorted.push_back(transfer);
  }
  std::sort(sorted.begin(), sorted.end(), [](const ExchangeTransfer& a, const ExchangeTransfer& b) {
    return std::tie(a.round, a.window, b.broadcast, a.peer, a.send) <
           std::tie(b.round, b.window, a.broadcast, b.peer, b.send);
  });
  std::vector<ExchangeStep> steps;
  for (const ExchangeTransfer& transfer : sorted) {
    if (steps.empty() || steps.back().round != transfer.round || steps.back().window != transfer.window) {
      steps.push_back({transfer.round, transfer.window, {}});
    }
    steps.back().transfers.push_back(transfer);
  }
  return steps;
}

std::vector<ExchangeRound> MakeCourse(const std::vector<ExchangeTransfer>& transfers) {
  std::map<uint32_t, ExchangeRound> rounds;
  for (const ExchangeTransfer& transfer : transfers) {
    if (transfer.send) rounds[transfer.round].lends = true;
  }
  for (ExchangeStep& step : MakeSchedule(transfers)) rounds[step.round].steps.push_back(std::move(step));
  std::vector<ExchangeRound> course;
  course.reserve(rounds.size());
  for (auto& [number, round] : rounds) {
    round.round = number;
    course.push_back(std::move(round));
  }
  return course;
}

}  // namespace cairn
