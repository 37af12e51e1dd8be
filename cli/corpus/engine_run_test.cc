#include "cli/corpus/engine_run.h"

#include <gtest/gtest.h>

#include "common/status/reason.h"

namespace cairn::cli {
namespace {

TEST(EngineRunTest, CheckSameInputs_AllPartsFoundTheSame_IsOk) {
  EXPECT_TRUE(CheckSameInputs({{{"inputs", "a"}, {"bytes", 1}}, {{"inputs", "a"}, {"bytes", 2}}}).ok());
}

TEST(EngineRunTest, CheckSameInputs_OnePartFoundOthers_Fails) {
  const auto status = CheckSameInputs({{{"inputs", "a"}}, {{"inputs", "a"}}, {{"inputs", "b"}}});
  EXPECT_TRUE(HasReason(status, Reason::kInputUnreadable)) << status;
}

}  // namespace
}  // namespace cairn::cli
