#include "cli/views/transfer_rates.h"

namespace cairn::cli {
namespace {

// The time over which a rate is computed: long enough to smooth bursts, short enough to show a stop.
constexpr absl::Duration kWindow = absl::Seconds(3);

}  // namespace

void TransferRates::Update(uint64_t operation, const google::protobuf::RepeatedPtrField<v1::RankProgress>& ranks,
                           absl::Time now) {
  if (operation != operation_) points_.clear();
  operation_ = operation;
  for (const v1::RankProgress& rank : ranks) {
    std::deque<Point>& points = points_[rank.rank()];
    if (!points.empty() && points.back().second > rank.bytes_done()) points.clear();  // another attempt
    points.emplace_back(now, rank.bytes_done());
    // The newest point before the window stays, because the rate is computed from it.
    while (points.size() > 2 && points[1].first <= now - kWindow) points.pop_front();
  }
}

double TransferRates::Of(uint32_t rank) const {
  const auto found = points_.find(rank);
  if (found == points_.end() || found->second.size() < 2) return 0;
  const auto& [begin, before] = found->second.front();
  const auto& [end, after] = found->second.back();
  if (end <= begin) return 0;
  return static_cast<double>(after - before) / absl::ToDoubleSeconds(end - begin);
}

double TransferRates::All() const {
  double all = 0;
  for (const auto& [rank, points] : points_) all += Of(rank);
  return all;
}

}  // namespace cairn::cli
