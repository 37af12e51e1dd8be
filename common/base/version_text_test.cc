#include "common/base/version_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/base/version.h"

namespace cairn {
namespace {

TEST(VersionTextTest, VersionText_CommitIsKnown_IsNamedBehindTheVersion) {
  EXPECT_EQ(VersionTextOf("cairn-agent", "0123456789ab with changes"),
            "cairn-agent " + std::string(kVersion) + " (commit 0123456789ab with changes)");
}

TEST(VersionTextTest, VersionText_CommitIsUnknown_SaysSo) {
  EXPECT_EQ(VersionTextOf("cairn", ""), "cairn " + std::string(kVersion) + " (unknown commit)");
}

// Bazel keeps a test's results in a cache, which a new commit must not empty.
TEST(VersionTextTest, VersionText_TestProgram_CarriesNoCommit) {
  EXPECT_EQ(VersionText("cairn"), VersionTextOf("cairn", ""));
}

}  // namespace
}  // namespace cairn
