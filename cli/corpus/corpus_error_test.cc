#include "cli/corpus/corpus_error.h"

#include <gtest/gtest.h>

#include <regex>
#include <string>

#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn::cli {
namespace {

TEST(CorpusErrorTest, WithCorpusAdvice_AnyReason_NamesNoFlagOrCommandOfCheckpoints) {
  for (const ReasonInfo& info : ReasonTable()) {
    if (info.reason == Reason::kInvalidUtf8) continue;
    const std::string next = NextActionOf(WithCorpusAdvice(MakeError(info.reason, "what")));
    EXPECT_FALSE(std::regex_search(next, std::regex("--[a-z]|`cairn"))) << info.name << ": " << next;
    EXPECT_EQ(next.empty(), InfoOf(info.reason).next_action.empty()) << info.name;
  }
}

TEST(CorpusErrorTest, WithCorpusAdvice_TheErrorHasAdvice_KeepsIt) {
  const absl::Status status = MakeError(Reason::kMemoryLimit, "what", {{"next", "Give --memory 1GiB."}});
  EXPECT_EQ(NextActionOf(WithCorpusAdvice(status)), "Give --memory 1GiB.");
  EXPECT_TRUE(WithCorpusAdvice(absl::OkStatus()).ok());
}

}  // namespace
}  // namespace cairn::cli
