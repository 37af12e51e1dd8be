#include "store/write/retention_file.h"

#include <gtest/gtest.h>

#include "common/status/reason.h"

namespace cairn {
namespace {

TEST(RetentionFileTest, DecodeRetention_WhatWasEncoded_IsThePolicy) {
  EXPECT_EQ(EncodeRetention({3, 1000}), "retention/1 keep-last 3 keep-every 1000\n");
  for (const PrunePolicy& policy :
       {PrunePolicy{3, 1000}, PrunePolicy{1, 0}, PrunePolicy{0, 1}, PrunePolicy{3, 0, BestRule{"loss", false}},
        PrunePolicy{0, 0, BestRule{"val/acc", true}}}) {
    const auto read = DecodeRetention(EncodeRetention(policy));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, policy);
  }
}

TEST(RetentionFileTest, DecodeRetention_AnythingElse_IsUnreadable) {
  for (const PrunePolicy& policy : {PrunePolicy{3, 1000}, PrunePolicy{3, 1000, BestRule{"loss", true}}}) {
    const std::string whole = EncodeRetention(policy);
    for (size_t size = 0; size < whole.size(); ++size) {
      EXPECT_TRUE(HasReason(DecodeRetention(whole.substr(0, size)).status(), Reason::kRetentionUnreadable)) << size;
    }
  }
  for (const char* text :
       {"retention/2 keep-last 3 keep-every 1000\n", "retention/1 keep-last 0 keep-every 0\n",
        "retention/1 keep-last -3 keep-every 1000\n", "retention/1 keep-last 3 keep-every 1000 keep-best loss\n",
        "retention/1 keep-last 3 keep-every 1000 keep-best :min\n",
        "retention/1 keep-last 3 keep-every 1000 keep-best loss:min keep-best cost:min\n",
        "retention/1 keep-last 99999999999999999999 keep-every 1\n", "retention/1 keep-last 3 keep-every 1000\n\n"}) {
    EXPECT_TRUE(HasReason(DecodeRetention(text).status(), Reason::kRetentionUnreadable)) << text;
  }
}

}  // namespace
}  // namespace cairn
