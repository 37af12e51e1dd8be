#include "cli/job_view.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace cairn::cli {
namespace {

// Rank 2 holds up the save: rank 0 waits for its shards, and rank 1 is done.
v1::Job JobWithALateRank() {
  v1::Job job;
  job.set_job("demo");
  job.set_world_size(4);
  for (uint32_t rank : {0U, 1U, 2U}) job.add_ranks()->set_rank(rank);
  v1::Checkpoint& save = *job.mutable_checkpoint();
  save.set_job("demo");
  save.set_step(40);
  save.set_state(v1::Checkpoint::WRITING);
  for (uint32_t rank : {0U, 1U, 2U}) {
    v1::RankProgress& progress = *save.add_ranks();
    progress.set_rank(rank);
    progress.set_phase(rank == 1 ? v1::RankProgress::WRITTEN : v1::RankProgress::WRITING);
    progress.set_bytes_done(rank == 1 ? 100 : 10 * rank);
    progress.set_bytes_total(100);
    progress.set_late(rank == 2);
    progress.set_note(rank == 0 ? "waits for shards of rank 2" : rank == 2 ? "no progress for 12s" : "");
  }
  return job;
}

// The ranks in the order of the lines that begin with one, from the line that names `header` on.
std::vector<std::string> RanksBelow(const std::string& text, const std::string& header) {
  std::vector<std::string> ranks;
  for (const auto line : absl::StrSplit(text.substr(text.find(header)), '\n')) {
    const std::string cell = std::string(absl::StripLeadingAsciiWhitespace(line));
    if (line.empty()) break;
    if (cell[0] >= '0' && cell[0] <= '9') ranks.push_back(cell.substr(0, cell.find(' ')));
  }
  return ranks;
}

TEST(JobViewTest, LiveJobText_OneRankIsLate_ShowsItFirstAndWhoWaitsForIt) {
  TransferRates rates;
  const v1::Job job = JobWithALateRank();
  const absl::Time begin = absl::FromUnixSeconds(1000);
  v1::Job before = job;
  before.mutable_checkpoint()->mutable_ranks(2)->set_bytes_done(0);
  rates.Update(OperationUnderWay(before).number, *OperationUnderWay(before).ranks, begin);
  rates.Update(OperationUnderWay(job).number, *OperationUnderWay(job).ranks, begin + absl::Seconds(1));
  const std::string text = LiveJobText(stdout, job, std::nullopt, rates);
  EXPECT_EQ(RanksBelow(text, "RATE"), (std::vector<std::string>{"2", "0", "1"})) << text;
  EXPECT_NE(text.find("LATE no progress for 12s"), std::string::npos) << text;
  EXPECT_NE(text.find("waits for shards of rank 2"), std::string::npos) << text;
  EXPECT_NE(text.find("20 B/s"), std::string::npos) << text;
  EXPECT_LT(text.find("RATE"), text.find("HEARD")) << "what is under way comes first";
}

TEST(JobViewTest, JobText_OneRankIsLate_KeepsTheOrderOfRanks) {
  const std::string text = JobText(stdout, JobWithALateRank(), std::nullopt);
  EXPECT_EQ(RanksBelow(text, "IDLE"), (std::vector<std::string>{"0", "1", "2"})) << text;
  EXPECT_NE(text.find("3 of 4 agents (none of rank 3)"), std::string::npos) << text;
}

TEST(JobViewTest, OperationUnderWay_NothingIs_HasNoRanks) {
  v1::Job job = JobWithALateRank();
  const uint64_t save = OperationUnderWay(job).number;
  job.mutable_checkpoint()->set_attempt(2);
  EXPECT_NE(OperationUnderWay(job).number, save) << "another attempt begins anew";
  job.mutable_checkpoint()->set_state(v1::Checkpoint::COMMITTED);
  EXPECT_EQ(OperationUnderWay(job).ranks, nullptr);
  v1::Load& load = *job.add_loads();
  load.set_number(3);
  load.add_ranks();
  EXPECT_EQ(OperationUnderWay(job).ranks, &load.ranks());
}

}  // namespace
}  // namespace cairn::cli
