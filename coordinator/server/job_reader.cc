#include "coordinator/server/job_reader.h"

#include <compare>
#include <cstddef>
#include <deque>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/duration_text.h"
#include "common/base/mutex.h"
#include "common/resources/memory.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

// So many threads read for one call.
constexpr int kThreads = 4;

}  // namespace

// What storage is asked: to list a directory, "" for the root, or to read the checkpoints of a job.
struct JobReader::Question {
  bool list = false;
  std::string name;

  auto operator<=>(const Question&) const = default;
};

// One call of ReadAll. The lock of Shared guards it.
struct JobReader::Scan {
  explicit Scan(absl::Duration time) : patience(time) { Add({true, ""}); }

  void Add(const Question& question) {
    if (seen.insert(question).second) waiting.push_back(question);
  }
  // What is known of a job already is better than an error.
  void Fail(const Question& question, const absl::Status& error) {
    if (question.name.empty()) {
      answer.found = error;
    } else {
      answer.jobs.try_emplace(question.name, error);
    }
  }
  void GiveUp(const Question& question) {
    const std::string& name = question.name;
    const std::string what =
        name.empty() ? std::string("which jobs there are") : absl::StrCat("the checkpoints of ", name);
    ErrorMetadata metadata;
    if (!name.empty()) metadata.emplace_back("job", name);
    Fail(question,
         MakeError(Reason::kStorageStalled,
                   absl::StrCat("the coordinator's storage has not told ", what, " within ", DurationText(patience)),
                   metadata));
  }
  void Take(const Question& question, const absl::StatusOr<JobDirectory>& listed) {
    if (!listed.ok()) return Fail(question, listed.status());
    if (listed->is_job) Add({false, question.name});
    for (const std::string& directory : listed->below) {
      if (++directories < kMostJobDirectories) {
        Add({true, directory});
      } else {
        answer.found = MakeError(Reason::kOverloaded,
                                 absl::StrCat("the root has more than ", kMostJobDirectories, " directories of jobs"));
      }
    }
  }

  const absl::Duration patience;
  std::set<Question> seen;
  std::deque<Question> waiting;
  std::set<Question> asked;
  size_t directories = 0;
  bool over = false;  // the call has returned
  Answer answer;
};

struct JobReader::Shared {
  explicit Shared(Calls all_calls) : calls(std::move(all_calls)) {}

  const Calls calls;
  Mutex mutex;
  CondVar changed;
  std::set<Question> hanging ABSL_GUARDED_BY(mutex);  // asked by calls that have returned without an answer
};

JobReader::JobReader(Calls calls) : shared_(std::make_shared<Shared>(std::move(calls))) {}

void JobReader::Run(const std::shared_ptr<Shared>& shared, const std::shared_ptr<Scan>& scan) {
  for (;;) {
    Question question;
    {
      MutexLock lock(shared->mutex);
      // A directory that is being listed may bring more.
      while (!scan->over && scan->waiting.empty() && !scan->asked.empty()) shared->changed.Wait(shared->mutex);
      if (scan->over || scan->waiting.empty()) return;
      question = std::move(scan->waiting.front());
      scan->waiting.pop_front();
      if (shared->hanging.contains(question)) {
        scan->GiveUp(question);
        shared->changed.NotifyAll();
        continue;
      }
      scan->asked.insert(question);
    }
    absl::StatusOr<JobDirectory> listed;
    absl::StatusOr<std::vector<StepRecord>> steps;
    if (question.list) {
      listed = WithMemory("to look for jobs", [&] { return shared->calls.list(question.name); });
    } else {
      steps = WithMemory("to read the checkpoints of a job", [&] { return shared->calls.read(question.name); });
    }
    MutexLock lock(shared->mutex);
    shared->hanging.erase(question);
    if (scan->over) return;
    scan->asked.erase(question);
    if (question.list) {
      scan->Take(question, listed);
    } else {
      scan->answer.jobs.insert_or_assign(question.name, std::move(steps));
    }
    shared->changed.NotifyAll();
  }
}

JobReader::Answer JobReader::ReadAll(const std::vector<std::string>& known, absl::Duration patience) {
  const absl::Time deadline = Clock::Real().SteadyNow() + patience;
  const auto scan = std::make_shared<Scan>(patience);
  for (const std::string& job : known) scan->Add({false, job});
  for (int i = 0; i < kThreads; ++i) {
    shared_->calls.run([shared = shared_, scan] { Run(shared, scan); });
  }
  MutexLock lock(shared_->mutex);
  while (!scan->waiting.empty() || !scan->asked.empty()) {
    const absl::Duration left = deadline - Clock::Real().SteadyNow();
    if (left <= absl::ZeroDuration()) break;
    shared_->changed.WaitFor(shared_->mutex, left);
  }
  scan->over = true;
  for (const Question& question : scan->waiting) scan->GiveUp(question);
  for (const Question& question : scan->asked) scan->GiveUp(question);
  shared_->hanging.merge(scan->asked);
  shared_->changed.NotifyAll();
  return std::move(scan->answer);
}

}  // namespace cairn
