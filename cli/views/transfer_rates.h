// Computes how fast each rank moves bytes, from looking again and again.
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
  // Takes what is known of the ranks at `now`. `operation` tells one operation from the next, whose ranks begin again
  // at no bytes.
  void Update(uint64_t operation, const google::protobuf::RepeatedPtrField<v1::RankProgress>& ranks, absl::Time now);
  // Bytes in a second over the last few seconds; 0 if nothing moves or too little is known.
  double Of(uint32_t rank) const;
  double All() const;

 private:
  using Point = std::pair<absl::Time, uint64_t>;  // so many bytes were done

  uint64_t operation_ = 0;
  std::map<uint32_t, std::deque<Point>> points_;  // by rank, oldest first
};

}  // namespace cairn::cli

#endif  // CAIRN_CLI_VIEWS_TRANSFER_RATES_H_
