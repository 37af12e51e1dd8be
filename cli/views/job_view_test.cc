#include "cli/views/job_view.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/time_proto.h"
#include "common/status/reason.h"
#include "common/status/status_proto.h"

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
  save.set_state(v1::Phase::WRITING);
  for (uint32_t rank : {0U, 1U, 2U}) {
    v1::RankProgress& progress = *save.add_ranks();
    progress.set_rank(rank);
    progress.set_phase(rank == 1 ? v1::Phase::WRITTEN : v1::Phase::WRITING);
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

// Rank 0's trainer waits, that of rank 1 is stopped, that of rank 2 has ended, and rank 3 has had none.
v1::Job JobWithAStoppedTrainer() {
  v1::Job job;
  job.set_job("demo");
  job.set_world_size(4);
  const auto add = [&](uint32_t rank, bool attached, v1::JobRank::TrainerProcess process) {
    v1::JobRank& added = *job.add_ranks();
    added.set_rank(rank);
    added.set_trainer_attached(attached);
    added.set_trainer_process(process);
    if (process != v1::JobRank::TRAINER_PROCESS_UNSPECIFIED) added.mutable_trainer_process_age()->set_seconds(12);
    if (!attached) return;
    added.set_current_step(19);
    added.mutable_trainer_step_age()->set_seconds(30);
  };
  add(0, true, v1::JobRank::RUNNING);
  add(1, true, v1::JobRank::STOPPED);
  add(2, false, v1::JobRank::GONE);
  add(3, false, v1::JobRank::TRAINER_PROCESS_UNSPECIFIED);
  return job;
}

TEST(JobViewTest, JobToJson_EachTrainer_HasItsLastStepAndHowItsProcessStands) {
  const auto agents = JobToJson(JobWithAStoppedTrainer(), std::nullopt)["agents"];
  for (const int rank : {0, 1}) {
    EXPECT_EQ(agents[rank]["trainer_step"], 19);
    EXPECT_EQ(agents[rank]["trainer_step_age_seconds"], 30.0);
  }
  EXPECT_EQ(agents[0]["trainer_state"], "running");
  EXPECT_EQ(agents[1]["trainer_state"], "stopped");
  EXPECT_EQ(agents[1]["trainer_state_age_seconds"], 12.0);
  EXPECT_EQ(agents[2]["trainer_state"], "gone");
  EXPECT_TRUE(agents[2]["trainer_step"].is_null());
  EXPECT_TRUE(agents[2]["trainer_step_age_seconds"].is_null());
  EXPECT_TRUE(agents[3]["trainer_state"].is_null()) << "there was none";
}

TEST(JobViewTest, JobToJson_ARunningSave_TellsProgressAndAges) {
  v1::Job job = JobWithALateRank();
  job.mutable_checkpoint()->set_bytes_done(30);
  job.mutable_checkpoint()->set_bytes_total(90);
  job.mutable_checkpoint()->mutable_create_time()->set_seconds(1'700'000'000);
  SetDuration(absl::Seconds(7), *job.mutable_checkpoint()->mutable_ranks(0)->mutable_idle());
  SetDuration(absl::Seconds(2), *job.add_ranks()->mutable_last_heard());
  job.set_lowest_step(19);
  job.set_layouts_awaited(2);
  job.add_layout_awaited_ranks(3);
  const auto json = JobToJson(job, std::nullopt);
  EXPECT_EQ(json["bytes_done"], 30);
  EXPECT_EQ(json["bytes_total"], 90);
  EXPECT_EQ(json["create_time"], "2023-11-14T22:13:20Z");
  EXPECT_EQ(json["ranks"][0]["idle_seconds"], 7.0);
  EXPECT_EQ(json["agents"].back()["last_heard_seconds"], 2.0);
  EXPECT_EQ(json["lowest_step"], 19);
  EXPECT_TRUE(json["highest_step"].is_null());
  EXPECT_EQ(json["layouts_awaited"], 2);
  EXPECT_EQ(json["layout_awaited_ranks"][0], 3);
}

TEST(JobViewTest, JobText_ATrainerIsStopped_SaysForHowLongAndIsWorthALook) {
  v1::Job job = JobWithAStoppedTrainer();
  const std::string text = JobText(stdout, job, std::nullopt);
  EXPECT_NE(text.find("stopped for 12.0 s"), std::string::npos) << text;
  EXPECT_NE(text.find("30.0 s ago"), std::string::npos) << text;
  EXPECT_NE(text.find("gone"), std::string::npos) << text;
  EXPECT_NE(text.find("none"), std::string::npos) << text;
  job.set_ranks_left_out(true);
  job.set_world_size(16384);
  EXPECT_EQ(RanksBelow(JobText(stdout, job, std::nullopt, RanksShown::kNoteworthy), "HEARD"),
            (std::vector<std::string>{"1", "2", "3"}));
}

TEST(JobViewTest, JobText_SaveInProgress_CountsPhasesAndNamesThoseFarthestBehind) {
  v1::Job job = JobWithALateRank();
  v1::PhaseCount& writing = *job.mutable_checkpoint()->add_phase_counts();
  writing.set_phase(v1::Phase::WRITING);
  writing.set_ranks(2);
  writing.set_late(1);
  const std::string text = JobText(stdout, job, std::nullopt);
  EXPECT_NE(text.find("  ranks: writing 2 (1 late)\n"), std::string::npos) << text;
  EXPECT_NE(text.find("  farthest behind: rank 0 (writing, 0 B of 100 B), rank 2 (writing, 20 B of 100 B)\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("steps: "), std::string::npos) << "all have begun: " << text;
  for (v1::RankProgress& rank : *job.mutable_checkpoint()->mutable_ranks()) {
    rank.set_phase(v1::Phase::WRITTEN);
    rank.set_bytes_done(100);
  }
  EXPECT_EQ(JobText(stdout, job, std::nullopt).find("farthest"), std::string::npos) << "nobody is behind";
}

TEST(JobViewTest, JobText_RanksAreOnTheirWayToTheStep_SaysHowManyHaveReachedIt) {
  v1::Job job;
  job.set_job("demo");
  job.set_world_size(8);
  for (uint32_t rank = 0; rank < 8; ++rank) {
    v1::JobRank& added = *job.add_ranks();
    added.set_rank(rank);
    if (rank != 5) added.set_current_step(100 - rank);
  }
  job.set_lowest_step(93);
  job.set_highest_step(100);
  v1::Checkpoint& save = *job.mutable_checkpoint();
  save.set_state(v1::Phase::PREPARING);
  EXPECT_NE(JobText(stdout, job, std::nullopt)
                .find("  steps: 1 of 8 has reached 100; farthest behind: rank 5 at none yet, rank 7 at 93, "
                      "rank 6 at 94, rank 4 at 96 and 3 more\n"),
            std::string::npos)
      << JobText(stdout, job, std::nullopt);
  save.set_step(94);
  save.set_state(v1::Phase::COLLECTING);
  EXPECT_NE(JobText(stdout, job, std::nullopt)
                .find("  steps: 6 of 8 have reached 94; farthest behind: rank 5 at none yet, rank 7 at 93\n"),
            std::string::npos)
      << JobText(stdout, job, std::nullopt);
  save.set_state(v1::Phase::WRITING);
  EXPECT_EQ(JobText(stdout, job, std::nullopt).find("steps: "), std::string::npos);
}

TEST(JobViewTest, OperationUnderWay_NothingIs_HasNoRanks) {
  v1::Job job = JobWithALateRank();
  const uint64_t save = OperationUnderWay(job).number;
  job.mutable_checkpoint()->set_attempt(2);
  EXPECT_NE(OperationUnderWay(job).number, save) << "another attempt begins anew";
  job.mutable_checkpoint()->set_state(v1::Phase::COMMITTED);
  EXPECT_EQ(OperationUnderWay(job).ranks, nullptr);
  v1::Load& load = *job.add_loads();
  load.set_number(3);
  load.add_ranks();
  EXPECT_EQ(OperationUnderWay(job).ranks, &load.ranks());
}

// The coordinator's view of a job with 16,384 ranks: two are late, and one has no trainer.
v1::Job LargeJob() {
  v1::Job job = JobWithALateRank();
  job.set_world_size(16384);
  job.set_agents(16384);
  job.set_trainers(16383);
  job.set_lowest_step(41000);
  job.set_highest_step(41002);
  job.set_ranks_left_out(true);
  for (v1::JobRank& rank : *job.mutable_ranks()) rank.set_trainer_attached(rank.rank() != 1);
  v1::PhaseCount& writing = *job.mutable_checkpoint()->add_phase_counts();
  writing.set_phase(v1::Phase::WRITING);
  writing.set_ranks(16000);
  writing.set_late(1);
  v1::PhaseCount& written = *job.mutable_checkpoint()->add_phase_counts();
  written.set_phase(v1::Phase::WRITTEN);
  written.set_ranks(384);
  job.mutable_checkpoint()->set_bytes_done(5000);
  job.mutable_checkpoint()->set_bytes_total(10000);
  return job;
}

TEST(JobViewTest, JobText_LargeJob_IsASummaryWithTheRanksWorthALook) {
  const std::string text = JobText(stdout, LargeJob(), std::nullopt, RanksShown::kNoteworthy);
  EXPECT_NE(text.find("16384 of 16384 agents"), std::string::npos) << text;
  EXPECT_NE(text.find("trainers: 16383 attached, at step 41000 to 41002"), std::string::npos) << text;
  EXPECT_NE(text.find("writing 16000 (1 late), written 384"), std::string::npos) << text;
  EXPECT_EQ(RanksBelow(text, "IDLE"), (std::vector<std::string>{"2", "0"})) << "late ones first; rank 1 is done";
  EXPECT_EQ(RanksBelow(text, "HEARD"), (std::vector<std::string>{"1"})) << "it has no trainer";
  EXPECT_NE(text.find("`cairn status demo --ranks`"), std::string::npos) << text;
}

TEST(JobViewTest, JobText_AllRanksOfALargeJob_AreShown) {
  v1::Job job = LargeJob();
  job.set_ranks_left_out(false);
  for (uint32_t rank = 3; rank < 16384; ++rank) job.add_ranks()->set_rank(rank);
  const std::string all = JobText(stdout, job, std::nullopt, RanksShown::kAll);
  EXPECT_EQ(RanksBelow(all, "HEARD").size(), 16384u);
  const std::string summary = JobText(stdout, job, std::nullopt, RanksShown::kNoteworthy);
  EXPECT_LT(std::count(summary.begin(), summary.end(), '\n'), 60) << "also if the coordinator told all of them";
}

TEST(JobViewTest, AppendPage_OfTheSameSave_AddsItsRanks) {
  v1::Job job = JobWithALateRank();
  v1::Job page = JobWithALateRank();
  page.set_next_rank(9);
  AppendPage(job, page);
  EXPECT_EQ(job.ranks_size(), 6);
  EXPECT_EQ(job.checkpoint().ranks_size(), 6);
  EXPECT_EQ(job.next_rank(), 9u);
  page.mutable_checkpoint()->set_attempt(2);
  AppendPage(job, page);
  EXPECT_EQ(job.checkpoint().ranks_size(), 6) << "those are of another attempt";
}

TEST(JobViewTest, JobText_LoadWithATransport_NamesItAndWhyItIsNotNccl) {
  v1::Job job = JobWithALateRank();
  v1::Load& load = *job.add_loads();
  load.set_number(3);
  load.set_state(v1::Phase::DONE);
  load.set_exchange_transport(v1::TRANSPORT_GRPC);
  load.set_nccl_refusal("rank 3 has --nccl=never");
  const std::string text = JobText(stdout, job, std::nullopt);
  EXPECT_NE(text.find("\n  transport: grpc (nccl: rank 3 has --nccl=never)\n"), std::string::npos) << text;
  EXPECT_NE(text.find("load 3: done"), std::string::npos) << text;
  load.set_reshard(true);
  const std::string reshard = JobText(stdout, job, std::nullopt);
  EXPECT_NE(reshard.find("reshard 3: done"), std::string::npos) << reshard;
  const auto json = JobToJson(job, std::nullopt);
  EXPECT_EQ(json["loads"][0]["reshard"], true);
  EXPECT_EQ(json["loads"][0]["transport"], "grpc (nccl: rank 3 has --nccl=never)");
  EXPECT_TRUE(json["transport"].is_null()) << "that of the save is not known";
}

TEST(JobViewTest, JobText_SaveWithMovedShards_NamesTheirTransport) {
  v1::Job job = JobWithALateRank();
  EXPECT_EQ(JobText(stdout, job, std::nullopt).find("transport"), std::string::npos);
  job.mutable_checkpoint()->set_exchange_transport(v1::TRANSPORT_NCCL);
  const std::string text = JobText(stdout, job, std::nullopt);
  EXPECT_NE(text.find("\n  transport: nccl\n"), std::string::npos) << text;
  EXPECT_EQ(JobToJson(job, std::nullopt)["transport"], "nccl");
}

TEST(JobViewTest, Job_NumbersOfALaterCoordinator_AreShownAsUnknown) {
  v1::Job job = JobWithALateRank();
  job.mutable_checkpoint()->mutable_ranks(0)->set_phase(static_cast<v1::Phase::Value>(77));
  v1::Load& load = *job.add_loads();
  load.set_state(static_cast<v1::Phase::Value>(78));
  load.set_exchange_transport(static_cast<v1::Transport>(79));
  const std::string text = JobText(stdout, job, std::nullopt);
  EXPECT_NE(text.find("unknown (77)"), std::string::npos) << text;
  EXPECT_NE(text.find("unknown (78)"), std::string::npos) << text;
  EXPECT_NE(text.find("transport: unknown (79)"), std::string::npos) << text;
  EXPECT_EQ(JobToJson(job, std::nullopt)["loads"][0]["state"], "unknown (78)");
}

TEST(JobViewTest, JobText_TrainersWaitInPrepare_NamesTheRanksThatTheyWaitFor) {
  v1::Job job;
  job.set_layouts_awaited(1);
  job.add_layout_awaited_ranks(3);
  EXPECT_NE(JobText(stdout, job, std::nullopt).find("prepare: waits for rank 3\n"), std::string::npos);
  job.set_layouts_awaited(12);
  job.add_layout_awaited_ranks(5);
  EXPECT_NE(JobText(stdout, job, std::nullopt).find("prepare: waits for ranks 3, 5 and 10 more\n"), std::string::npos);
}

TEST(JobViewTest, JobText_FirstStartOfAJob_IsNoFailure) {
  v1::Job job;
  job.set_job("demo");
  v1::Load& load = *job.add_loads();
  load.set_number(1);
  load.set_state(v1::Phase::FAILED);
  *load.mutable_error() = StatusToProto(MakeError(Reason::kNotCommitted, "demo has no committed checkpoint"));
  const std::string text = JobText(stdout, job, std::nullopt);
  EXPECT_NE(text.find("load 1: nothing to load"), std::string::npos) << text;
  EXPECT_EQ(text.find("failed"), std::string::npos) << text;
  EXPECT_NE(JobText(stdout, job, v1::Checkpoint()).find("load 1: nothing to load: the job had no checkpoint then\n"),
            std::string::npos);
  const auto json = JobToJson(job, std::nullopt)["loads"][0];
  EXPECT_EQ(json["state"], "NOTHING_TO_LOAD");
  EXPECT_TRUE(json["error"].is_null()) << json;
  load.set_step(7);
  EXPECT_EQ(JobToJson(job, std::nullopt)["loads"][0]["state"], "FAILED");
  EXPECT_NE(JobText(stdout, job, std::nullopt).find("failed"), std::string::npos) << "whoever names a step expects it";
}

}  // namespace
}  // namespace cairn::cli
