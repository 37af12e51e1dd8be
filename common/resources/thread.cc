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

std::optional<FailedCall> ForEachOnThreads(size_t count, size_t share, Helpers& helpers,
                                           const std::function<int(size_t)>& one) {
  std::atomic<size_t> next = 0;
  std::atomic<bool> stop = false;
  Mutex mutex;
  std::optional<FailedCall> first;
  const int taken = helpers.Take(static_cast<int>(std::min<size_t>(count / share, INT_MAX)));
  RunOnThreads(1 + taken, [&] {
    // Numbers are taken in order, and every taken number is finished. So when one has failed, all below it have ended.
    while (!stop) {
      const size_t i = next++;
      if (i >= count) return;
      const int error = one(i);
      if (error == 0) continue;
      stop = true;
      MutexLock lock(mutex);
      if (!first.has_value() || i < first->index) first = {i, error};
    }
  });
  helpers.GiveBack(taken);
  return first;
}

}  // namespace cairn
