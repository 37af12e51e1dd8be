#include "common/resources/thread.h"

#include <algorithm>
#include <new>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
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

}  // namespace cairn
