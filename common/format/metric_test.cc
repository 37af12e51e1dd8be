#include "common/format/metric.h"

#include <limits>

#include "common/status/reason.h"
#include "gtest/gtest.h"

namespace cairn {
namespace {

TEST(MetricTest, IsMetricName_NamesOfTrainingLibraries_AreTaken) {
  for (const char* name : {"loss", "eval_loss", "val/loss", "top-1.accuracy", "_runtime", "0", "F1"}) {
    EXPECT_TRUE(IsMetricName(name)) << name;
  }
  EXPECT_TRUE(IsMetricName(std::string(100, 'a')));
}

TEST(MetricTest, IsMetricName_WhatARuleCouldNotSay_IsRefused) {
  for (const char* name : {"", "a b", "loss:min", "-loss", "/loss", ".loss", "l\nx",
                           "gr\xc3\xb6\xc3\x9f"
                           "e"}) {
    EXPECT_FALSE(IsMetricName(name)) << name;
  }
  EXPECT_FALSE(IsMetricName(std::string(101, 'a')));
}

TEST(MetricTest, Equality_NaN_EqualsItself) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ((Metric{"loss", nan}), (Metric{"loss", nan}));
  EXPECT_NE((Metric{"loss", 1}), (Metric{"loss", nan}));
  EXPECT_NE((Metric{"loss", 1}), (Metric{"cost", 1}));
}

TEST(MetricTest, ParseBestRule_WhatToStringWrites_IsTheRule) {
  for (const BestRule& rule : {BestRule{"loss", false}, BestRule{"val/acc-1.5", true}, BestRule{"min", true}}) {
    const auto read = ParseBestRule(ToString(rule));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, rule);
  }
}

TEST(MetricTest, ParseBestRule_AnythingElse_IsRefused) {
  for (const char* text : {"", "loss", "loss:", ":min", "loss:lowest", "loss:MIN", "a b:min", "loss:min ", "a:b:min"}) {
    EXPECT_TRUE(HasReason(ParseBestRule(text).status(), Reason::kBadRequest)) << text;
  }
}

}  // namespace
}  // namespace cairn
