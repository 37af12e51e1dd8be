#include "common/rpc/reported_metrics.h"

#include <gtest/gtest.h>

#include <string>

#include "common/format/metric.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

TEST(ReportedMetricsTest, CheckMetrics_WhatNoManifestHas_IsRefused) {
  google::protobuf::RepeatedPtrField<v1::Metric> metrics;
  EXPECT_TRUE(CheckMetrics(metrics).ok());
  for (size_t i = 0; i < kMaxMetrics; ++i) metrics.Add()->set_name("val/loss" + std::to_string(i));
  EXPECT_TRUE(CheckMetrics(metrics).ok()) << CheckMetrics(metrics);
  for (const std::string& name : {std::string(), std::string("a b"), std::string(101, 'a'), std::string("val/loss0")}) {
    auto wrong = metrics;
    wrong[7].set_name(name);
    EXPECT_TRUE(HasReason(CheckMetrics(wrong), Reason::kBadRequest)) << name;
  }
  metrics.Add()->set_name("one_more");
  EXPECT_TRUE(HasReason(CheckMetrics(metrics), Reason::kBadRequest));
}

}  // namespace
}  // namespace cairn
