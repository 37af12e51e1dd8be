// Which calls of load meet, one order of events at a time, through the job that they belong to.
#include "coordinator/load/loads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/time_proto.h"
#include "common/status/reason.h"
#include "coordinator/load/testing/loads_fixture.h"

namespace cairn {
namespace {

using LoadsTest = LoadsFixture;

// All processes of a job were killed and started again. The agents of the last run stand until their leases end, and

// the new ones cannot come before that.
TEST_F(LoadsTest, Advance_AgentOfTheLastRunIsLost_WaitsForItsSuccessor) {
  DecisionOptions options = Options();
  options.phase_timeout = absl::Minutes(1);
  options.lease_ttl = absl::Seconds(10);
  StartJob(options, 2);
  for (int rank = 0; rank < 2; ++rank) {
    Register(rank);
    Report(rank, Trainer(rank));
  }
  Recover({});
  Pass(absl::Seconds(1));
  Restart(0);
  Report(0, Call(0, 1, 777));
  for (int second = 0; second < 11; ++second) {
    Pass(absl::Seconds(1));
    Report(0, Call(0, 1, 777));
  }
  EXPECT_EQ(Action(0, 1), v1::Phase::WAITING) << Error(0, 1);
  Restart(1);
  Report(1, 0);
  // The next trainer takes longer to start than another one would have to take a lost one's place.
  for (int second = 0; second < 11; ++second) {
    Pass(absl::Seconds(1));
    Report(0, Call(0, 1, 777));
    Report(1, 0);
  }
  EXPECT_EQ(Action(0, 1), v1::Phase::WAITING) << Error(0, 1);
  Report(1, Call(1, 1, 778));
  ASSERT_TRUE(Plan());
  EXPECT_EQ(Action(0, 1), v1::Phase::READING);
}

TEST_F(LoadsTest, Advance_AgentIsLostThatWasHeardInTheLoad_EndsIt) {
  DecisionOptions options = Options();
  options.lease_ttl = absl::Seconds(10);
  StartJob(options, 2);
  for (int rank = 0; rank < 2; ++rank) {
    Register(rank);
    Report(rank, Trainer(rank));
  }
  Recover({});
  Report(0, Call(0, 1));
  Pass(absl::Seconds(1));
  Report(1, Trainer(1));
  for (int second = 0; second < 11; ++second) {
    Pass(absl::Seconds(1));
    Report(0, Call(0, 1));
  }
  EXPECT_EQ(Why(0, 1), Reason::kRankLost);
  EXPECT_EQ(Detail(0, 1, "ranks"), "1");
}

TEST_F(LoadsTest, Apply_OpenCalls_MeetWhateverTheirNumbers) {
  Report(0, Call(0, 5));
  Report(1, Call(1, 1));
  ASSERT_TRUE(Plan());
  EXPECT_EQ(Action(0, 5), v1::Phase::READING);
  EXPECT_EQ(Action(1, 1), v1::Phase::READING);
  EXPECT_EQ(Order(0, 5).transfer_token(), Order(1, 1).transfer_token());
  EXPECT_EQ(Order(0, 5).trainer_incarnation(), Trainer(0));
  Report(0, In(Call(0, 5), v1::Phase::DONE));
  Report(1, In(Call(1, 1), v1::Phase::DONE));
  EXPECT_EQ(Action(0, 5), v1::Phase::DONE);
  EXPECT_EQ(Action(1, 1), v1::Phase::DONE);
}

// A report that was sent before the answer came, and more loads ended since than are kept.
TEST_F(LoadsTest, Apply_AnsweredCallIsSaidAgain_BeginsNoLoad) {
  constexpr uint64_t kLoads = 40;
  for (uint64_t number = 1; number <= kLoads; ++number) {
    for (int rank : {0, 1}) Report(rank, Call(rank, number));
    ASSERT_TRUE(Plan());
    for (int rank : {0, 1}) Report(rank, In(Call(rank, number), v1::Phase::DONE));
  }
  for (uint64_t number : {uint64_t{1}, kLoads}) {
    for (int rank : {0, 1}) Report(rank, Trainer(rank));
    for (int rank : {0, 1}) Report(rank, Call(rank, number));
    EXPECT_FALSE(Plan()) << number;
  }
}

TEST_F(LoadsTest, Load_AgentsHaveFilesInMemory_AreNamedToThePlannerByRank) {
  v1::LoadState call = Call(1, 1);
  call.set_kept_step(7);
  call.set_kept_attempt(2);
  Report(0, Call(0, 1));
  Report(1, call);
  ASSERT_TRUE(Plan());
  ASSERT_EQ(kept_.size(), 2u);
  EXPECT_EQ(kept_[0].attempt, 0u);
  EXPECT_EQ(kept_[1].step, 7);
  EXPECT_EQ(kept_[1].attempt, 2u);
}

TEST_F(LoadsTest, Load_RanksTookDifferentWays_TellsTheSlowest) {
  const std::vector<v1::IoPath> slower = {v1::IO_PATH_UNSPECIFIED, v1::IO_PATH_MEMORY, v1::IO_PATH_SLAB,
                                          v1::IO_PATH_CACHED, v1::IO_PATH_DIRECT};
  uint64_t number = 0;
  for (size_t a = 0; a < slower.size(); ++a) {
    for (size_t b = 0; b < slower.size(); ++b) {
      ++number;
      const size_t way[] = {a, b};
      for (int rank : {0, 1}) Report(rank, Call(rank, number));
      ASSERT_TRUE(Plan());
      for (int rank : {0, 1}) {
        v1::LoadState done = In(Call(rank, number), v1::Phase::DONE);
        done.set_io_path(slower[way[rank]]);
        Report(rank, done);
      }
      ASSERT_EQ(Action(0, number), v1::Phase::DONE);
      EXPECT_EQ(Order(0, number).io_path(), slower[std::max(a, b)]);
    }
  }
}

TEST_F(LoadsTest, OrderToRead_WhateverTheWorld_StaysBelowTwoKilobytes) {
  for (const int ranks : {2, 512}) {
    Start(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      Report(rank, Call(rank, 1));
      core_->layouts.Add(Layout(rank), 1);  // more layouts than are kept of those that nobody holds
    }
    Report(0, Call(0, 1));
    ASSERT_TRUE(Plan());
    ASSERT_EQ(Action(1, 1), v1::Phase::READING) << ranks;
    EXPECT_LT(job().OrdersFor(1, At()).ByteSizeLong(), 2048u) << ranks;
  }
}

TEST_F(LoadsTest, View_RankIsIdle_TellsHowLongWithFractionsOfASecond) {
  Report(0, Call(0, 1));
  Report(1, Call(1, 1));
  ASSERT_TRUE(Plan());
  Pass(absl::Milliseconds(1500));
  const v1::Job view = job().View(At());
  ASSERT_EQ(view.loads_size(), 1);
  ASSERT_EQ(view.loads(0).ranks_size(), 2);
  EXPECT_EQ(DurationOf(view.loads(0).ranks(0).idle()), absl::Milliseconds(1500));
}

// One trainer was restarted and loads, and the others go on training.
TEST_F(LoadsTest, View_RankDoesNotCallTheLoad_IsNamedWithinSeconds) {
  Report(1, Trainer(1));
  Report(0, Call(0, 1));
  Pass(absl::Seconds(1));
  EXPECT_EQ(job().View(At()).loads(0).ranks(1).note(), "") << "it may be about to call it";
  Pass(absl::Seconds(2));
  const v1::Job view = job().View(At());
  EXPECT_EQ(view.loads(0).ranks(1).note(),
            "no progress for 3s, its trainer has not begun the load, agent last heard 3s ago");
  EXPECT_FALSE(view.loads(0).ranks(1).late());
  EXPECT_EQ(view.loads(0).ranks(0).note(), "") << "it waits for the other one";
}

TEST_F(LoadsTest, View_RankIsInASave_IsNamedWithItsStep) {
  v1::AgentState saving = StateWith(Trainer(1));
  v1::SaveState& save = *saving.add_saves();
  save.set_step(7);
  save.set_phase(v1::Phase::PLANNING);
  save.set_trainer_incarnation(Trainer(1));
  Synchronize(1, saving);
  Report(0, Call(0, 1));
  Pass(absl::Seconds(3));
  const std::string note = job().View(At()).loads(0).ranks(1).note();
  EXPECT_EQ(note, "no progress for 3s, its trainer saves step 7, agent last heard 3s ago");
}

TEST_F(LoadsTest, Load_CallTimedOutAlone_EndsAtOnceAndTheNextOnesMeet) {
  Report(1, Trainer(1));
  Report(0, Call(0, 1));
  Report(0, Failed(Call(0, 1), Reason::kTimedOut, "no plan within 1 s"));
  EXPECT_EQ(Action(0, 1), v1::Phase::FAILED);
  EXPECT_EQ(Why(0, 1), Reason::kRankLate);
  EXPECT_EQ(Detail(0, 1, "ranks"), "1");
  EXPECT_EQ(Detail(0, 1, "phase"), "waiting");
  EXPECT_EQ(Detail(0, 1, "job"), kJob);
  Report(1, Call(1, 1));
  EXPECT_EQ(Action(1, 1), v1::Phase::WAITING) << "it is in no operation that has ended";
  Report(0, Call(0, 2));
  EXPECT_TRUE(Plan());
}

TEST_F(LoadsTest, Load_RankNeverCalls_IsNamedToAllWhoWaitAndItsLaterCallBeginsAnew) {
  Start(3);
  for (int rank = 0; rank < 3; ++rank) Report(rank, Trainer(rank));
  Report(0, Call(0, 3));
  Report(2, Call(2, 1));
  Pass(absl::Seconds(20));
  for (const auto& [rank, number] : {std::pair(0, 3), std::pair(2, 1)}) {
    EXPECT_EQ(Why(rank, number), Reason::kRankLate);
    EXPECT_EQ(Detail(rank, number, "ranks"), "1");
    EXPECT_EQ(Detail(rank, number, "phase"), "waiting");
    EXPECT_EQ(Detail(rank, number, "job"), kJob);
  }
  Report(1, Call(1, 1));
  EXPECT_EQ(Action(1, 1), v1::Phase::WAITING);
  Report(0, Call(0, 4));
  Report(2, Call(2, 2));
  EXPECT_TRUE(Plan());
}

TEST_F(LoadsTest, Apply_CallThatHasEnded_IsNeverMatchedAgain) {
  Report(0, Call(0, 1));
  Report(1, Call(1, 1));
  ASSERT_TRUE(Plan());
  for (int rank = 0; rank < 2; ++rank) Report(rank, In(Call(rank, 1), v1::Phase::DONE));
  // The agents have not heard it yet; rank 1 has, and goes on.
  Report(1, Call(1, 2));
  Report(0, In(Call(0, 1), v1::Phase::DONE));
  Report(0, Call(0, 1));
  EXPECT_EQ(Action(0, 1), v1::Phase::DONE);
  EXPECT_EQ(Action(1, 2), v1::Phase::WAITING);
  EXPECT_FALSE(Plan());
  Report(0, Call(0, 2));
  EXPECT_TRUE(Plan());
}

TEST_F(LoadsTest, Load_CallFailedBeforeItWasHeardOf_HasItsOwnErrorAndEndsNobodyElses) {
  Report(1, Call(1, 1));
  Report(0, Failed(Call(0, 1), Reason::kTimedOut, "no plan within 1 s"));
  EXPECT_EQ(Why(0, 1), Reason::kTimedOut);
  EXPECT_EQ(Detail(0, 1, "job"), kJob);
  Pass(absl::Seconds(2));
  EXPECT_EQ(Action(1, 1), v1::Phase::WAITING);
  Report(0, Trainer(0), {Failed(Call(0, 1), Reason::kTimedOut, "no plan within 1 s"), Call(0, 2)});
  EXPECT_TRUE(Plan());
}

TEST_F(LoadsTest, Load_CallsOfADeadTrainer_JoinNobodysNewOnes) {
  // Its agent tells of the successor and, still, of the open call of the one that is gone.
  Report(0, 900, {Call(0, 7, Trainer(0))});
  EXPECT_EQ(Why(0, 7), Reason::kTrainerLost);
  Report(1, Call(1, 1));
  EXPECT_FALSE(Plan());
  Report(0, 900, {Call(0, 7, Trainer(0)), Call(0, 1, 900)});
  EXPECT_TRUE(Plan());
  EXPECT_EQ(Action(1, 1), v1::Phase::READING);
}

TEST_F(LoadsTest, Load_SuccessorThatJoinedAPredecessorsOperation_IsNotEndedWithIt) {
  Report(1, Trainer(1));
  Report(0, Call(0, 4));  // of a job that is being killed
  Report(1, 0);
  Report(1, Call(1, 1, 901));
  Report(0, 0, {Failed(Call(0, 4), Reason::kTrainerLost, "the trainer ended")});
  Pass(absl::Seconds(1));
  EXPECT_EQ(Why(0, 4), Reason::kTrainerLost);
  EXPECT_EQ(Action(1, 1), v1::Phase::WAITING) << Error(1, 1);
  Report(0, Call(0, 1, 900));
  EXPECT_TRUE(Plan());
}

TEST_F(LoadsTest, Load_TrainerRestartsWhileOthersWait_TakesItsPlace) {
  Report(1, Trainer(1));
  Report(0, Call(0, 4));
  Report(1, 0);
  Pass(absl::Seconds(5));
  Report(1, Call(1, 1, 901));
  EXPECT_TRUE(Plan());
}

TEST_F(LoadsTest, Load_TrainerThatGivesUpWhileAllRead_EndsItForAllByName) {
  Report(0, Call(0, 1));
  Report(1, Call(1, 8));
  ASSERT_TRUE(Plan());
  Report(0, In(Call(0, 1), v1::Phase::READING));
  Report(1, Failed(In(Call(1, 8), v1::Phase::READING), Reason::kInterrupted, "rank 1: KeyboardInterrupt"));
  Pass(absl::Seconds(1));
  EXPECT_EQ(Why(0, 1), Reason::kInterrupted);
  EXPECT_EQ(Detail(0, 1, "ranks"), "1");
  EXPECT_EQ(Detail(0, 1, "step"), "7");
  EXPECT_EQ(Why(1, 8), Reason::kInterrupted);
}

TEST_F(LoadsTest, Load_CallThatItsAgentDropsOrFollowsByAnother_WasGivenUp) {
  Report(0, Call(0, 1));
  Report(0, Call(0, 2));
  Report(1, Call(1, 1));
  ASSERT_TRUE(Plan());
  EXPECT_EQ(Action(0, 2), v1::Phase::READING);
  Report(0, Trainer(0));
  Pass(absl::Seconds(1));
  EXPECT_EQ(Why(1, 1), Reason::kInterrupted);
  EXPECT_EQ(Detail(1, 1, "ranks"), "0");
  // One that names two: the later one counts.
  Report(0, Trainer(0), {Call(0, 3)});
  Report(0, Trainer(0), {Call(0, 3), Call(0, 4)});
  Report(1, Call(1, 2));
  ASSERT_TRUE(Plan());
  EXPECT_EQ(Action(0, 3), v1::Phase::FAILED);
  EXPECT_EQ(Action(0, 4), v1::Phase::READING);
}

TEST_F(LoadsTest, Load_LoadAndReshard_EndBothAndNameBoth) {
  v1::LoadState reshard = Call(1, 1);
  reshard.set_source_layout_digest(Layout(1));
  reshard.set_fallback(false);
  v1::LoadState load = Call(0, 1);
  load.set_step(5);
  Report(0, load);
  Report(1, reshard);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(Why(rank, 1), Reason::kBadRequest);
    const std::string message(Error(rank, 1).message());
    EXPECT_NE(message.find("rank 0 called load of step 5"), std::string::npos) << message;
    EXPECT_NE(message.find("rank 1 called reshard"), std::string::npos) << message;
    EXPECT_EQ(Detail(rank, 1, "ranks"), "0, 1");
  }
  for (int rank = 0; rank < 2; ++rank) Report(rank, Call(rank, 2));
  EXPECT_TRUE(Plan());
}

TEST_F(LoadsTest, Load_TimeoutWhileReading_NamesThoseWhoOweBytes) {
  Report(0, Call(0, 1));
  Report(1, Call(1, 1));
  ASSERT_TRUE(Plan());
  v1::LoadState owing = In(Call(1, 1), v1::Phase::READING);
  owing.set_bytes_total(100);
  Report(1, owing);
  Report(0, Failed(In(Call(0, 1), v1::Phase::READING), Reason::kTimedOut, "no bytes arrived for 5 s"));
  Pass(absl::Seconds(1));
  EXPECT_EQ(Why(0, 1), Reason::kRankLate);
  EXPECT_EQ(Detail(0, 1, "ranks"), "1");
  EXPECT_EQ(Detail(0, 1, "phase"), "reading");
}

TEST_F(LoadsTest, Load_DamagedCheckpoint_NamesStepFileAndWhatToLoadInstead) {
  for (const std::optional<int64_t> step : {std::optional<int64_t>(), std::optional<int64_t>(3)}) {
    const uint64_t number = step.has_value() ? 2 : 1;
    for (int rank = 0; rank < 2; ++rank) {
      v1::LoadState call = Call(rank, number);
      if (step.has_value()) call.set_step(*step);
      Report(rank, call);
    }
    passed_over_.clear();
    if (!step.has_value()) passed_over_.emplace_back(9, MakeError(Reason::kFileMissing, "y.safetensors is missing"));
    ASSERT_TRUE(Plan());
    Report(1, Failed(In(Call(1, number), v1::Phase::READING), Reason::kChecksumMismatch, "rank 1: x.safetensors",
                     {{"file", "x.safetensors"}}));
    Pass(absl::Seconds(1));
    EXPECT_EQ(Why(0, number), Reason::kChecksumMismatch);
    EXPECT_EQ(Detail(0, number, "file"), "x.safetensors");
    EXPECT_EQ(Detail(0, number, "step"), step.has_value() ? "3" : "7");
    EXPECT_EQ(Detail(0, number, "older_step"), step.has_value() ? "" : "5");
    const std::string message(Error(0, number).message());
    EXPECT_NE(message.find(step.has_value() ? "no older step is committed" : "the next older one is step 5"),
              std::string::npos)
        << message;
    EXPECT_EQ(Detail(0, number, "next"), step.has_value() ? ""
                                                          : "Load step 5; nobody has looked at its files, and `cairn "
                                                            "verify demo@5 --root ROOT` says whether they are whole.");
    EXPECT_EQ(message.find("passed over: step 9 (FILE_MISSING)") != std::string::npos, !step.has_value()) << message;
    EXPECT_EQ(message.find("rank 1: rank 1: "), std::string::npos) << message;
    EXPECT_NE(message.find("rank 1: x.safetensors"), std::string::npos) << message;
  }
}

TEST_F(LoadsTest, View_StepIsNotKnownYet_DoesNotShowIt) {
  Report(0, Call(0, 9));
  EXPECT_FALSE(job().View(At()).loads(0).has_step());
  EXPECT_EQ(job().View(At()).loads(0).number(), 1u) << "the operation's, no rank's";
  Report(1, Call(1, 1));
  ASSERT_TRUE(Plan());
  EXPECT_EQ(job().View(At()).loads(0).step(), 7);
}

TEST_F(LoadsTest, Forget_EndlessCalls_LeaveLittleBehind) {
  Report(1, Trainer(1));
  for (uint64_t number = 1; number < 10'000; ++number) {
    Report(0, Call(0, number));
    Report(0, Failed(Call(0, number), Reason::kTimedOut, "0 s"));
    ASSERT_EQ(Action(0, number), v1::Phase::FAILED);
    ASSERT_LE(job().View(At()).loads_size(), 17);
    core_->TakeLog();
  }
  // An agent that never drops what has ended.
  std::vector<v1::LoadState> calls;
  for (uint64_t number = 20'000; number < 20'500; ++number) {
    calls.push_back(Call(0, number));
    Report(0, Trainer(0), calls);
    ASSERT_LE(job().View(At()).loads_size(), 100);
  }
  EXPECT_EQ(Action(0, 20'000), v1::Phase::FAILED);
  EXPECT_EQ(Action(0, 20'499), v1::Phase::WAITING);
}

// Two ranks load step 7 and have its fingerprints compared.
class VerifiedLoadTest : public LoadsFixture {
 protected:
  v1::LoadState Verified(int rank) {
    v1::LoadState call = Call(rank, 1);
    call.set_verify_fingerprints(true);
    return call;
  }
  static v1::LoadState DoneWith(const v1::LoadState& call, uint64_t part) {
    v1::LoadState done = In(call, v1::Phase::DONE);
    done.add_fingerprint_parts(part);
    return done;
  }
  void LoadToTheEnd() {
    Report(0, Verified(0));
    Report(1, Verified(1));
    ASSERT_TRUE(Plan());
    Report(0, DoneWith(Verified(0), 10));
    EXPECT_FALSE(Take<VerifyLoad>().has_value());
    Report(1, DoneWith(Verified(1), 11));
  }
};

TEST_F(VerifiedLoadTest, EndsWhenAllPartsWereCompared) {
  LoadToTheEnd();
  const std::optional<VerifyLoad> verify = Take<VerifyLoad>();
  ASSERT_TRUE(verify.has_value());
  EXPECT_EQ(verify->parts, (std::vector<std::vector<uint64_t>>{{10}, {11}}));
  for (int minute = 0; minute < 30; ++minute) {
    for (int second = 0; second < 60; second += 2) {
      Pass(absl::Seconds(2));
      for (const int rank : {0, 1}) Report(rank, DoneWith(Verified(rank), 10));
    }
  }
  EXPECT_EQ(Action(0, 1), v1::Phase::READING) << "nobody is late while they are compared";
  EXPECT_FALSE(Take<VerifyLoad>().has_value()) << "once";
  job().OnLoadVerified(verify->number, verify->ticket + 1, 9, At());
  EXPECT_EQ(Action(0, 1), v1::Phase::READING) << "an answer to another question";
  job().OnLoadVerified(verify->number, verify->ticket, 2, At());
  for (const int rank : {0, 1}) {
    EXPECT_EQ(Action(rank, 1), v1::Phase::DONE);
    EXPECT_EQ(Order(rank, 1).verified_tensors(), 2);
  }
}

TEST_F(VerifiedLoadTest, FailsForAllRanksAlike) {
  LoadToTheEnd();
  const std::optional<VerifyLoad> verify = Take<VerifyLoad>();
  ASSERT_TRUE(verify.has_value());
  job().OnLoadVerified(verify->number, verify->ticket,
                       MakeError(Reason::kFingerprintMismatch, "w is another one", {{"names", "w"}, {"ranks", "1"}}),
                       At());
  for (const int rank : {0, 1}) {
    EXPECT_EQ(Why(rank, 1), Reason::kFingerprintMismatch);
    EXPECT_EQ(Detail(rank, 1, "ranks"), "1");
    EXPECT_EQ(Detail(rank, 1, "step"), "7");
  }
}

TEST_F(VerifiedLoadTest, ARankThatDoesNotWantItIsNamed) {
  Report(0, Verified(0));
  Report(1, Call(1, 1));
  EXPECT_EQ(Why(0, 1), Reason::kBadRequest);
  EXPECT_NE(Error(0, 1).message().find("to be verified"), std::string::npos) << Error(0, 1);
}

// The trainers wait for the end; the next coordinator hears again what they hold.
TEST_F(VerifiedLoadTest, ACoordinatorThatRestartsComparesThem) {
  LoadToTheEnd();
  const std::string digest = calls_digest_;
  Start(2);
  Report(0, DoneWith(Verified(0), 10));
  Report(1, DoneWith(Verified(1), 11));
  ASSERT_TRUE(Plan());
  EXPECT_EQ(calls_digest_, digest);
  const std::optional<VerifyLoad> verify = Take<VerifyLoad>();
  ASSERT_TRUE(verify.has_value()) << Error(0, 1);
  EXPECT_EQ(verify->parts, (std::vector<std::vector<uint64_t>>{{10}, {11}}));
}

TEST_F(LoadsTest, OrderToRead_OfACopy_NamesTheMirror) {
  mirror_ = "s3://copies/demo";
  Report(0, Call(0, 1));
  Report(1, Call(1, 1));
  ASSERT_TRUE(Plan());
  EXPECT_EQ(Order(0, 1).mirror(), mirror_);
}

}  // namespace
}  // namespace cairn
