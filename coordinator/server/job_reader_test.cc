#include "coordinator/server/job_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

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
    for (std::thread& thread : threads_) thread.join();
  }

  static StepRecord RecordOf(int64_t step) {
    StepRecord record;
    record.step = step;
    return record;
  }
  void HangAt(const std::string& job) {
    MutexLock lock(mutex_);
    hangs_.insert(job);
  }
  void Release() {
    MutexLock lock(mutex_);
    hangs_.clear();
    changed_.NotifyAll();
  }
  void Call(const std::string& name) {
    MutexLock lock(mutex_);
    ++calls_;
    while (hangs_.contains(name)) changed_.Wait(mutex_);
  }
  int calls() {
    MutexLock lock(mutex_);
    return calls_;
  }
  // Puts a job below the root.
  void Store(const std::string& job, Steps steps) {
    listed_[""]->below.push_back(job);
    listed_.emplace(job, JobDirectory{true, {}});
    stored_.emplace(job, std::move(steps));
  }

  std::map<std::string, absl::StatusOr<JobDirectory>> listed_ = {{"", JobDirectory()}};
  std::map<std::string, Steps> stored_;
  int calls_ = 0;
  Mutex mutex_;
  CondVar changed_;
  std::set<std::string> hangs_;
  std::vector<std::thread> threads_;
  JobReader reader_ = JobReader({[this](std::function<void()> work) { threads_.emplace_back(std::move(work)); },
                                 [this](const std::string& directory) {
                                   Call("list " + directory);
                                   return listed_.at(directory);
                                 },
                                 [this](const std::string& job) {
                                   Call("read " + job);
                                   return stored_.at(job);
                                 }});
};

TEST_F(JobReaderTest, ReadAll_AJobFails_IsToldBesideTheOthers) {
  Store("a", Steps({RecordOf(7)}));
  Store("b", MakeError(Reason::kStorageError, "list b: Input/output error"));
  Store("c", Steps({RecordOf(8)}));
  listed_.at("c") = MakeError(Reason::kStorageError, "list c: Input/output error");
  stored_.emplace("served", Steps(std::vector<StepRecord>()));
  const JobReader::Answer answer = reader_.ReadAll({"served", "a"}, absl::Minutes(1));
  EXPECT_TRUE(answer.found.ok()) << answer.found;
  ASSERT_EQ(answer.jobs.size(), 4u);
  ASSERT_TRUE(answer.jobs.at("a").ok());
  EXPECT_EQ(answer.jobs.at("a")->at(0).step, 7);
  EXPECT_TRUE(answer.jobs.at("served").ok());
  for (const char* failed : {"b", "c"}) {
    EXPECT_TRUE(HasReason(answer.jobs.at(failed).status(), Reason::kStorageError)) << answer.jobs.at(failed).status();
  }
}

TEST_F(JobReaderTest, ReadAll_StorageHangsAtAJob_TellsTheOthersAndAsksForItOnce) {
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
  check(reader_.ReadAll({}, absl::Milliseconds(300)));
  EXPECT_EQ(calls(), 1 + 40 + 40);
  check(reader_.ReadAll({}, absl::Minutes(1)));  // it is not waited for
  EXPECT_EQ(calls(), 2 * (1 + 40 + 40) - 1);
  Release();
  for (int i = 0; i < 1000; ++i) {  // the thread comes back soon
    const JobReader::Answer answer = reader_.ReadAll({}, absl::Minutes(1));
    if (answer.jobs.at("job3").ok()) return;
    std::this_thread::yield();
  }
  ADD_FAILURE() << "it is never asked for again";
}

TEST_F(JobReaderTest, ReadAll_ADirectoryCannotBeListedInTime_IsNamed) {
  Store("a", Steps({RecordOf(1)}));
  Store("b", Steps({RecordOf(2)}));
  Store("served", Steps({RecordOf(3)}));
  HangAt("list a");
  HangAt("list served");
  const JobReader::Answer answer = reader_.ReadAll({"served"}, absl::Milliseconds(300));
  EXPECT_TRUE(answer.found.ok()) << answer.found;
  EXPECT_TRUE(HasReason(answer.jobs.at("a").status(), Reason::kStorageStalled)) << answer.jobs.at("a").status();
  EXPECT_TRUE(answer.jobs.at("b").ok());
  EXPECT_TRUE(answer.jobs.at("served").ok()) << "its checkpoints were read";
}

TEST_F(JobReaderTest, ReadAll_TooManyDirectories_SaysSo) {
  for (size_t i = 0; i <= kMostJobDirectories; ++i) {
    listed_[""]->below.push_back("d" + std::to_string(i));
    listed_.emplace(listed_[""]->below.back(), JobDirectory());
  }
  EXPECT_TRUE(HasReason(reader_.ReadAll({}, absl::Minutes(1)).found, Reason::kOverloaded));
}

TEST_F(JobReaderTest, ReadAll_TheRootHangs_ReadsThoseThatAreKnown) {
  stored_.emplace("served", Steps({RecordOf(1)}));
  HangAt("list ");
  const JobReader::Answer answer = reader_.ReadAll({"served"}, absl::Milliseconds(300));
  EXPECT_TRUE(HasReason(answer.found, Reason::kStorageStalled)) << answer.found;
  EXPECT_THAT(std::string(answer.found.message()), HasSubstr("which jobs there are"));
  ASSERT_EQ(answer.jobs.size(), 1u);
  EXPECT_TRUE(answer.jobs.at("served").ok());
}

}  // namespace
}  // namespace cairn
