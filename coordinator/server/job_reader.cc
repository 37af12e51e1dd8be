#include "coordinator/server/job_reader.h"

#include <deque>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/resources/memory.h"
#include "common/status/reason.h"

namespace cairn {
namespace {

absl::Status Stalled(const std::string& name) {
  ErrorMetadata metadata;
  if (!name.empty()) metadata.emplace_back("job", name);
  return MakeError(Reason::kStorageStalled,
                   absl::StrCat("the coordinator's storage has not told ",
                                name.empty() ? "which jobs there are" : "the checkpoints of ", name, " in time"),
                   metadata);
}

// What storage says of one name: "" for the root, of a job, or of a directory that may hold jobs.
struct Told {
  absl::StatusOr<JobDirectory> listed;
  std::optional<absl::StatusOr<std::vector<StepRecord>>> steps;
};

Told Ask(const JobReader::Calls& calls, const std::string& name, bool known) {
  Told told;
  told.listed = WithMemory("to look for jobs", [&] { return calls.list(name); });
  if (known || (told.listed.ok() && told.listed->is_job)) {
    told.steps = WithMemory("to read the checkpoints of a job", [&] { return calls.read(name); });
  }
  return told;
}

}  // namespace

// The lock of Shared guards it.
struct JobReader::Scan {
  void Add(const std::string& name) {
    if (seen.insert(name).second) waiting.push_back(name);
  }
  void Fail(const std::string& name, const absl::Status& error) {
    if (name.empty()) {
      answer.found = error;
    } else {
      answer.jobs.insert_or_assign(name, error);
    }
  }
  void Take(const std::string& name, Told told) {
    if (!told.listed.ok()) Fail(name, told.listed.status());
    if (told.steps.has_value()) answer.jobs.insert_or_assign(name, *std::move(told.steps));
    if (!told.listed.ok()) return;
    for (const std::string& directory : told.listed->below) {
      if (++directories < kMostJobDirectories) {
        Add(directory);
      } else {
        answer.found = MakeError(Reason::kOverloaded,
                                 absl::StrCat("the root has more than ", kMostJobDirectories, " directories of jobs"));
      }
    }
  }
  bool complete() const { return waiting.empty() && asked.empty(); }

  std::set<std::string> known;
  std::set<std::string> seen;
  std::deque<std::string> waiting;
  std::set<std::string> asked;
  size_t directories = 0;
  bool queued = false;  // it is one of Shared::scans
  bool over = false;
  Answer answer;
  Done done;
};

struct JobReader::Shared {
  explicit Shared(Calls all_calls) : calls(std::move(all_calls)) {}

  void Queue(const std::shared_ptr<Scan>& scan) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (!scan->waiting.empty() && !std::exchange(scan->queued, true)) scans.push_back(scan);
  }
  // Counts the threads that are to be started now.
  size_t Wanted() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    size_t wanted = 0;
    for (const std::shared_ptr<Scan>& scan : scans) wanted += scan->over ? 0 : scan->waiting.size();
    size_t started = 0;
    for (; started < wanted && threads < kMostThreads && threads < kThreads + hanging.size(); ++started) ++threads;
    return started;
  }
  // Returns what to call if the scan has just ended.
  std::function<void()> EndIfComplete(const std::shared_ptr<Scan>& scan) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (scan->over || !scan->complete()) return [] {};
    return End(*scan);
  }
  std::function<void()> End(Scan& scan) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    scan.over = true;
    if (scan.done == nullptr) return [] {};  // Begin will call it
    return [done = std::exchange(scan.done, nullptr), answer = std::move(scan.answer)]() mutable {
      done(std::move(answer));
    };
  }
  // Takes the next name that storage is to be asked for, of one scan after the other.
  std::shared_ptr<Scan> Next(std::string& name, std::vector<std::function<void()>>& ended)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    while (!scans.empty()) {
      const std::shared_ptr<Scan> scan = std::move(scans.front());
      scans.pop_front();
      scan->queued = false;
      if (scan->over || scan->waiting.empty()) continue;
      name = std::move(scan->waiting.front());
      scan->waiting.pop_front();
      const bool hangs = hanging.contains(name);
      if (hangs) {
        scan->Fail(name, Stalled(name));
      } else {
        scan->asked.insert(name);
      }
      Queue(scan);
      if (!hangs) return scan;
      ended.push_back(EndIfComplete(scan));
    }
    return nullptr;
  }

  const Calls calls;
  Mutex mutex;
  std::deque<std::shared_ptr<Scan>> scans ABSL_GUARDED_BY(mutex);  // those with names that wait
  std::set<std::string> hanging ABSL_GUARDED_BY(mutex);            // asked for by scans that were given up
  size_t threads ABSL_GUARDED_BY(mutex) = 0;                       // also those that hang
};

JobReader::JobReader(Calls calls) : shared_(std::make_shared<Shared>(std::move(calls))) {}

std::shared_ptr<JobReader::Scan> JobReader::MakeScan(const std::vector<std::string>& known) {
  auto scan = std::make_shared<Scan>();
  scan->known.insert(known.begin(), known.end());
  scan->Add("");
  for (const std::string& job : known) scan->Add(job);
  return scan;
}

void JobReader::Begin(const std::shared_ptr<Scan>& scan, Done done) {
  size_t threads = 0;
  std::function<void()> end;
  {
    MutexLock lock(shared_->mutex);
    scan->done = std::move(done);
    if (scan->over) {
      end = shared_->End(*scan);
    } else {
      shared_->Queue(scan);
      threads = shared_->Wanted();
    }
  }
  if (end != nullptr) end();
  Start(shared_, threads);
}

void JobReader::GiveUp(const std::shared_ptr<Scan>& scan) {
  size_t threads = 0;
  std::function<void()> end;
  {
    MutexLock lock(shared_->mutex);
    if (scan->over) return;
    for (const std::string& name : scan->waiting) scan->Fail(name, Stalled(name));
    for (const std::string& name : scan->asked) scan->Fail(name, Stalled(name));
    shared_->hanging.merge(scan->asked);
    end = shared_->End(*scan);
    threads = shared_->Wanted();
  }
  end();
  Start(shared_, threads);
}

void JobReader::Start(const std::shared_ptr<Shared>& shared, size_t threads) {
  for (size_t i = 0; i < threads; ++i) shared->calls.run([shared] { Run(shared); });
}

void JobReader::Run(const std::shared_ptr<Shared>& shared) {
  for (;;) {
    std::string name;
    std::shared_ptr<Scan> scan;
    std::vector<std::function<void()>> ended;
    bool known = false;
    {
      MutexLock lock(shared->mutex);
      scan = shared->Next(name, ended);
      if (scan == nullptr) {
        --shared->threads;
      } else {
        known = scan->known.contains(name);
      }
    }
    for (const std::function<void()>& end : ended) end();
    if (scan == nullptr) return;
    Told told = Ask(shared->calls, name, known);
    size_t threads = 0;
    std::function<void()> end;
    {
      MutexLock lock(shared->mutex);
      shared->hanging.erase(name);
      if (!scan->over) {
        scan->asked.erase(name);
        scan->Take(name, std::move(told));
        shared->Queue(scan);
      }
      end = shared->EndIfComplete(scan);
      threads = shared->Wanted();
    }
    end();
    Start(shared, threads);
  }
}

}  // namespace cairn
