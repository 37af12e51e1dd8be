// Computes how fast each rank moves bytes, from repeated reports of their progress.
#ifndef CAIRN_CLI_VIEWS_TRANSFER_RATES_H_
#define CAIRN_CLI_VIEWS_TRANSFER_RATES_H_

#include <cstdint>
#include <deque>
#include <map>
#include <utility>

#include "absl/time/time.h"
#include "cairn/v1/checkpoint_service.pb.h"

namespace cairn::cli {

// Computes the rates of one operation. Not thread-safe.
class TransferRates {
 public:
  // Takes the ranks' progress at the time `now`. `operation` identifies the operation; with another one all rates begin
  // anew, because its ranks begin at 0 bytes.
  void Update(uint64_t operation, const google::protobuf::RepeatedPtrField<v1::RankProgress>& ranks, absl::Time now);
  // Returns bytes per second over the last few seconds; 0 if nothing moves or too few reports have come.
  double Of(uint32_t rank) const;
  double All() const;

 private:
  using Point = std::pair<absl::Time, uint64_t>;  // a time, and the bytes that were done at that time

  uint64_t operation_ = 0;
  std::map<uint32_t, std::deque<Point>> points_;  // by rank, oldest first
};

}  // namespace cairn::cli

#endif  // CAIRN_CLI_VIEWS_TRANSFER_RATES_H_
