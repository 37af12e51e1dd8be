#include "coordinator/server/job_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <future>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/base/mutex.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

using Steps = absl::StatusOr<std::vector<StepRecord>>;
using ::testing::HasSubstr;

// A storage whose calls hang at some jobs or directories, until the end or Release.
class JobReaderTest : public ::testing::Test {
 protected:
  ~JobReaderTest() override {
    Release();
    for (std::vector<std::thread> ended; !(ended = Threads()).empty();) {
      for (std::thread& thread : ended) thread.join();
    }
  }

  static StepRecord RecordOf(int64_t step) {
    StepRecord record;
    record.step = step;
    return record;
  }
  // Puts a job below the root.
  void Store(const std::string& job, Steps steps) {
    listed_[""]->below.push_back(job);
    listed_.emplace(job, JobDirectory{true, {}});
    stored_.emplace(job, std::move(steps));
  }
  void HangAt(const std::string& call) {
    MutexLock lock(mutex_);
    hangs_.insert(call);
  }
  void Release() {
    MutexLock lock(mutex_);
    hangs_.clear();
    changed_.NotifyAll();
  }
  void Call(const std::string& call) {
    MutexLock lock(mutex_);
    ++calls_;
    most_at_once_ = std::max(most_at_once_, ++at_once_);
    while (hangs_.contains(call)) changed_.Wait(mutex_);
    --at_once_;
  }
  int calls() {
    MutexLock lock(mutex_);
    return calls_;
  }
  size_t most_at_once() {
    MutexLock lock(mutex_);
    return most_at_once_;
  }
  std::vector<std::thread> Threads() {
    MutexLock lock(mutex_);
    return std::exchange(threads_, {});
  }
  // Gives the scan up after some time.
  JobReader::Answer Read(const std::vector<std::string>& known, absl::Duration patience = absl::Minutes(1)) {
    const auto scan = JobReader::MakeScan(known);
    std::promise<JobReader::Answer> answer;
    reader_.Begin(scan, [&](JobReader::Answer read) { answer.set_value(std::move(read)); });
    std::future<JobReader::Answer> told = answer.get_future();
    told.wait_for(absl::ToChronoMilliseconds(patience));
    reader_.GiveUp(scan);
    return told.get();
  }

  std::map<std::string, absl::StatusOr<JobDirectory>> listed_ = {{"", JobDirectory()}};
  std::map<std::string, Steps> stored_;
  Mutex mutex_;
  CondVar changed_;
  std::set<std::string> hangs_ ABSL_GUARDED_BY(mutex_);
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t at_once_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t most_at_once_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
  JobReader reader_ = JobReader({[this](std::function<void()> work) {
                                   MutexLock lock(mutex_);
                                   threads_.emplace_back(std::move(work));
                                 },
                                 [this](const std::string& directory) {
                                   Call("list " + directory);
                                   return listed_.at(directory);
                                 },
                                 [this](const std::string& job) {
                                   Call("read " + job);
                                   return stored_.at(job);
                                 }});
};

TEST_F(JobReaderTest, Scan_AJobFails_IsToldBesideTheOthers) {
  Store("a", Steps({RecordOf(7)}));
  Store("b", MakeError(Reason::kStorageError, "list b: Input/output error"));
  Store("c", Steps({RecordOf(8)}));
  listed_.at("c") = MakeError(Reason::kStorageError, "list c: Input/output error");
  listed_.emplace("served", JobDirectory());
  stored_.emplace("served", Steps(std::vector<StepRecord>()));
  const JobReader::Answer answer = Read({"served", "a"});
  EXPECT_TRUE(answer.found.ok()) << answer.found;
  ASSERT_EQ(answer.jobs.size(), 4u);
  ASSERT_TRUE(answer.jobs.at("a").ok());
  EXPECT_EQ(answer.jobs.at("a")->at(0).step, 7);
  EXPECT_TRUE(answer.jobs.at("served").ok());
  for (const char* failed : {"b", "c"}) {
    EXPECT_TRUE(HasReason(answer.jobs.at(failed).status(), Reason::kStorageError)) << answer.jobs.at(failed).status();
  }
}

TEST_F(JobReaderTest, Scan_StorageHangsAtAJob_TellsTheOthersAndAsksForItOnce) {
  for (int i = 0; i < 40; ++i) Store("job" + std::to_string(i), Steps({RecordOf(i)}));
  HangAt("read job3");
  const auto check = [](const JobReader::Answer& answer) {
    EXPECT_EQ(answer.jobs.size(), 40u);
    for (const auto& [job, steps] : answer.jobs) {
      EXPECT_EQ(steps.ok(), job != "job3") << job << ": " << steps.status();
    }
    const absl::Status why = answer.jobs.at("job3").status();
    EXPECT_TRUE(HasReason(why, Reason::kStorageStalled)) << why;
    EXPECT_THAT(std::string(why.message()), HasSubstr("the checkpoints of job3"));
  };
  check(Read({}, absl::Milliseconds(500)));
  EXPECT_EQ(calls(), 1 + 40 + 40);
  check(Read({}));  // it is not waited for
  EXPECT_EQ(calls(), 2 * (1 + 40 + 40) - 2);
  Release();
  for (int i = 0; i < 1000; ++i) {  // the thread comes back soon
    if (Read({}).jobs.at("job3").ok()) return;
    std::this_thread::yield();
  }
  ADD_FAILURE() << "it is never asked for again";
}

// The pool of the coordinator has few threads, and saves need some of them.
TEST_F(JobReaderTest, Scan_StorageHangsAtManyJobs_TakesFewThreads) {
  for (int i = 0; i < 9; ++i) {
    Store("job" + std::to_string(i), Steps({RecordOf(i)}));
    HangAt("list job" + std::to_string(i));
  }
  for (int i = 0; i < 5; ++i) {
    const JobReader::Answer answer = Read({}, absl::Milliseconds(100));
    // When all threads hang, nobody looks any more.
    ASSERT_EQ(answer.jobs.size(), i < 2 ? 9u : 0u) << i;
    EXPECT_EQ(HasReason(answer.found, Reason::kStorageStalled), i >= 2) << answer.found;
    for (const auto& [job, steps] : answer.jobs) EXPECT_TRUE(HasReason(steps.status(), Reason::kStorageStalled)) << job;
  }
  EXPECT_LE(most_at_once(), JobReader::kMostThreads);
  Release();
  EXPECT_TRUE(Read({}).found.ok());
}

TEST_F(JobReaderTest, Scan_ManyAtATime_AreAllAnswered) {
  for (int i = 0; i < 20; ++i) Store("job" + std::to_string(i), Steps({RecordOf(i)}));
  std::vector<std::thread> callers;
  for (int i = 0; i < 12; ++i) {
    callers.emplace_back([this] {
      const JobReader::Answer answer = Read({"job5"});
      EXPECT_EQ(answer.jobs.size(), 20u);
      for (const auto& [job, steps] : answer.jobs) EXPECT_TRUE(steps.ok()) << job << ": " << steps.status();
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_LE(most_at_once(), JobReader::kThreads);
}

TEST_F(JobReaderTest, Scan_ADirectoryCannotBeListedInTime_IsNamed) {
  Store("a", Steps({RecordOf(1)}));
  Store("b", Steps({RecordOf(2)}));
  HangAt("list a");
  const JobReader::Answer answer = Read({}, absl::Milliseconds(300));
  EXPECT_TRUE(answer.found.ok()) << answer.found;
  EXPECT_TRUE(HasReason(answer.jobs.at("a").status(), Reason::kStorageStalled)) << answer.jobs.at("a").status();
  EXPECT_TRUE(answer.jobs.at("b").ok());
}

TEST_F(JobReaderTest, Scan_TheRootHangs_ReadsThoseThatAreKnown) {
  listed_.emplace("served", JobDirectory());
  stored_.emplace("served", Steps({RecordOf(1)}));
  HangAt("list ");
  const JobReader::Answer answer = Read({"served"}, absl::Milliseconds(300));
  EXPECT_TRUE(HasReason(answer.found, Reason::kStorageStalled)) << answer.found;
  EXPECT_THAT(std::string(answer.found.message()), HasSubstr("which jobs there are"));
  ASSERT_EQ(answer.jobs.size(), 1u);
  EXPECT_TRUE(answer.jobs.at("served").ok());
}

TEST_F(JobReaderTest, Scan_TooManyDirectories_SaysSo) {
  for (size_t i = 0; i <= kMostJobDirectories; ++i) {
    listed_[""]->below.push_back("d" + std::to_string(i));
    listed_.emplace(listed_[""]->below.back(), JobDirectory());
  }
  EXPECT_TRUE(HasReason(Read({}).found, Reason::kOverloaded));
}

TEST_F(JobReaderTest, Begin_AScanThatWasGivenUp_IsAnswered) {
  const auto scan = JobReader::MakeScan({"served"});
  reader_.GiveUp(scan);
  bool answered = false;
  reader_.Begin(scan, [&](const JobReader::Answer& answer) {
    answered = true;
    EXPECT_FALSE(answer.found.ok());
  });
  EXPECT_TRUE(answered);
}

}  // namespace
}  // namespace cairn
