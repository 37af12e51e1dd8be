#include "cli/local/missing_name.h"

#include <gtest/gtest.h>

namespace cairn::cli {
namespace {

TEST(MissingNameTest, WhereNamesAre_NothingIsKnown_SaysWhatElseIsNeeded) {
  EXPECT_EQ(WhereNamesAre("JOB", "", {}),
            "`cairn jobs --coordinator HOST:PORT`, or `cairn jobs --root DIR`, lists the jobs.");
}

TEST(MissingNameTest, WhereNamesAre_ACoordinatorIsGiven_CommandsThatAskIt) {
  EXPECT_EQ(WhereNamesAre("JOB", "host:1", {{"demo", "127.0.0.1:7420"}}), "`cairn jobs` lists the jobs.");
  EXPECT_EQ(WhereNamesAre("JOB@STEP", "host:1", {}),
            "`cairn jobs` lists the jobs, and `cairn list JOB` the steps of one.");
}

TEST(MissingNameTest, WhereNamesAre_CoordinatorsRunHere_NamesTheirJobs) {
  EXPECT_EQ(WhereNamesAre("JOB@STEP", "", {{"demo", "127.0.0.1:7420"}}),
            "Job demo runs here. `cairn jobs` lists the jobs, and `cairn list demo` the steps of one.");
  const std::string several = WhereNamesAre("JOB", "", {{"a", ""}, {"b", ""}, {"c", ""}, {"d", ""}, {"e", ""}});
  EXPECT_EQ(several,
            "Jobs a, b, c, d and 1 more run here. `cairn jobs --coordinator HOST:PORT`, or `cairn jobs --root DIR`, "
            "lists the jobs.");
}

TEST(MissingNameTest, WhereNamesAre_RootIsMissing_NamesTheOneThatIsServed) {
  EXPECT_EQ(WhereNamesAre("--root", "", {}), "It is the directory of the checkpoints.");
  EXPECT_EQ(WhereNamesAre("--root", "", {{"demo", "127.0.0.1:7420", "/ckpt"}}),
            "It is the directory of the checkpoints: that of job demo is /ckpt.");
}

TEST(MissingNameTest, WhereNamesAre_ArgumentIsNoName_SaysNothing) { EXPECT_EQ(WhereNamesAre("FILE", "", {}), ""); }

}  // namespace
}  // namespace cairn::cli
