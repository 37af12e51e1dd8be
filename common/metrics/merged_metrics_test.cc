#include "common/metrics/merged_metrics.h"

#include <gtest/gtest.h>

namespace cairn {
namespace {

TEST(MergedMetricsTest, MergedMetrics_SameMetricInTwoTexts_IsOnePieceWithALabelForEach) {
  const std::string own = "# HELP up_total Of this.\n# TYPE up_total counter\nup_total 1\n";
  const std::string agent =
      "# HELP up_total Of that.\n# TYPE up_total counter\nup_total 2\n"
      "# HELP held Bytes.\n# TYPE held gauge\nheld{kind=\"a {b} c\"} 3\nheld{} 4 1700000000\n";
  EXPECT_EQ(MergedMetrics({{"", own}, {"rank=\"0\"", agent}, {"rank=\"1\"", agent}}),
            "# HELP up_total Of this.\n# TYPE up_total counter\nup_total 1\nup_total{rank=\"0\"} 2\n"
            "up_total{rank=\"1\"} 2\n"
            "# HELP held Bytes.\n# TYPE held gauge\n"
            "held{rank=\"0\",kind=\"a {b} c\"} 3\nheld{rank=\"0\"} 4 1700000000\n"
            "held{rank=\"1\",kind=\"a {b} c\"} 3\nheld{rank=\"1\"} 4 1700000000\n");
}

TEST(MergedMetricsTest, MergedMetrics_Histogram_KeepsItsSeriesTogether) {
  const std::string text = "# TYPE t histogram\nt_count 1\nt_sum 2\nt_bucket{le=\"+Inf\"} 1\n";
  EXPECT_EQ(MergedMetrics({{"rank=\"7\"", text}}),
            "# TYPE t histogram\nt_count{rank=\"7\"} 1\nt_sum{rank=\"7\"} 2\nt_bucket{rank=\"7\",le=\"+Inf\"} 1\n");
}

TEST(MergedMetricsTest, MergedMetrics_LinesThatAreNotOfAMetric_AreLeftOut) {
  EXPECT_EQ(MergedMetrics({{"rank=\"0\"", "HTTP is not this\n# a comment\n#\n\n"}}), "");
}

}  // namespace
}  // namespace cairn
