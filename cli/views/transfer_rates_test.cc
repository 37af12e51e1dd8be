#include "cli/views/transfer_rates.h"

#include <gtest/gtest.h>

namespace cairn::cli {
namespace {

const absl::Time kBegin = absl::FromUnixSeconds(1000);

google::protobuf::RepeatedPtrField<v1::RankProgress> Ranks(std::initializer_list<uint64_t> done) {
  google::protobuf::RepeatedPtrField<v1::RankProgress> ranks;
  for (uint64_t bytes : done) {
    v1::RankProgress& rank = *ranks.Add();
    rank.set_rank(static_cast<uint32_t>(ranks.size() - 1));
    rank.set_bytes_done(bytes);
  }
  return ranks;
}

TEST(TransferRatesTest, Of_BytesGrow_IsTheirRateOverTheLastSeconds) {
  TransferRates rates;
  rates.Update(1, Ranks({0, 0}), kBegin);
  EXPECT_EQ(rates.Of(0), 0) << "one look tells no rate";
  rates.Update(1, Ranks({100, 0}), kBegin + absl::Seconds(1));
  EXPECT_EQ(rates.Of(0), 100);
  EXPECT_EQ(rates.Of(1), 0);
  for (int second = 2; second <= 10; ++second) rates.Update(1, Ranks({100, 50}), kBegin + absl::Seconds(second));
  EXPECT_EQ(rates.Of(0), 0) << "it has stopped for longer than the window";
  EXPECT_EQ(rates.All(), 0);
}

TEST(TransferRatesTest, Of_AnotherOperation_BeginsAnew) {
  TransferRates rates;
  rates.Update(1, Ranks({500}), kBegin);
  rates.Update(2, Ranks({10}), kBegin + absl::Seconds(1));
  EXPECT_EQ(rates.Of(0), 0);
  rates.Update(2, Ranks({30}), kBegin + absl::Seconds(2));
  EXPECT_EQ(rates.Of(0), 20);
}

TEST(TransferRatesTest, Of_BytesShrink_BeginsAnew) {
  TransferRates rates;
  rates.Update(1, Ranks({500}), kBegin);
  rates.Update(1, Ranks({0}), kBegin + absl::Seconds(1));
  rates.Update(1, Ranks({40}), kBegin + absl::Seconds(2));
  EXPECT_EQ(rates.Of(0), 40);
}

TEST(TransferRatesTest, Of_UnknownRank_IsZero) { EXPECT_EQ(TransferRates().Of(3), 0); }

}  // namespace
}  // namespace cairn::cli
