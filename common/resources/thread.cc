#include "common/resources/thread.h"

#include <algorithm>
#include <atomic>
#include <climits>
#include <new>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/resources/memory.h"
#include "common/status/reason.h"

namespace cairn {

absl::StatusOr<std::thread> StartThread(std::string_view what, std::function<void()> work) {
  const auto refused = [&](const std::string& why) {
    return MakeError(Reason::kMemoryLimit, absl::StrCat("no thread is to be had ", std::string(what), ": ", why,
                                                        " (ulimit -u and -v, pids.max of the control group)"));
  };
  try {
    return std::thread(std::move(work));
  } catch (const std::system_error& error) {
    return refused(error.code().message());
  } catch (const std::bad_alloc&) {
    return refused("no memory");
  }
}

void RunOnThreads(int threads, const std::function<void()>& work) {
  std::vector<std::thread> others;
  others.reserve(static_cast<size_t>(std::max(threads, 1)));
  for (int i = 1; i < threads; ++i) {
    auto thread = StartThread("to help", work);
    if (!thread.ok()) break;
    others.push_back(*std::move(thread));
  }
  work();
  for (std::thread& thread : others) thread.join();
}

int Helpers::Take(int wanted) {
  int free = free_;
  int taken = 0;
  do {
    taken = std::min(free, wanted);
  } while (!free_.compare_exchange_weak(free, free - taken));
  return taken;
}

absl::Status ForEachOnThreads(std::string_view what, size_t count, int threads,
                              const std::function<absl::Status(size_t number, int thread)>& one) {
  std::atomic<size_t> next = 0;
  std::atomic<int> begun = 0;
  std::atomic<bool> stop = false;
  Mutex mutex;
  size_t first = count;
  absl::Status error;  // of `first`
  const size_t most = std::min(static_cast<size_t>(std::max(threads, 1)), count);
  RunOnThreads(static_cast<int>(most), [&] {
    const int thread = begun++;
    // Numbers are taken in order, and every taken number is finished. So when one has failed, all below it have ended.
    while (!stop) {
      const size_t i = next++;
      if (i >= count) return;
      absl::Status status = WithMemory(what, [&] { return one(i, thread); });
      if (status.ok()) continue;
      stop = true;
      MutexLock lock(mutex);
      if (i > first) continue;
      first = i;
      error = std::move(status);
    }
  });
  return error;
}

absl::Status ForEachOnThreads(std::string_view what, size_t count, size_t share, Helpers& helpers,
                              const std::function<absl::Status(size_t number, int thread)>& one) {
  const int taken = helpers.Take(static_cast<int>(std::min<size_t>(count / share, INT_MAX - 1)));
  absl::Status status = ForEachOnThreads(what, count, 1 + taken, one);
  helpers.GiveBack(taken);
  return status;
}

}  // namespace cairn
