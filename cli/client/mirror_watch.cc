#include "cli/client/mirror_watch.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cli/base/counted.h"
#include "cli/base/terminal.h"
#include "cli/client/coordinator_client.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/status/status_proto.h"

namespace cairn::cli {
namespace {

// The coordinator has looked at its mirror by then, if that answers.
constexpr absl::Duration kFirst = absl::Seconds(5);
constexpr absl::Duration kEach = absl::Minutes(1);
constexpr absl::Duration kPatience = absl::Seconds(3);

std::string NameOf(const v1::Mirror& mirror) { return absl::StrCat("the mirror ", ForTerminal(mirror.address())); }

std::string ErrorOf(const v1::Mirror& mirror) {
  const absl::Status error = StatusFromProto(mirror.error());
  return absl::StrCat(std::string(InfoOf(ReasonOf(error).value_or(Reason::kInternal)).name), ": ",
                      ForTerminal(std::string(error.message())));
}

}  // namespace

std::string MirrorNews::Take(const v1::Mirror& mirror) {
  const std::string error = mirror.has_error() ? ErrorOf(mirror) : "";
  // At first nobody has looked at it.
  const bool stalled = HasReason(StatusFromProto(mirror.error()), Reason::kStorageStalled);
  if (stalled && !std::exchange(stalled_, stalled)) return "";
  stalled_ = stalled;
  if (error == told_) return "";
  const bool again = error.empty();
  told_ = error;
  if (again) return absl::StrCat(NameOf(mirror), " works again");
  return absl::StrCat(NameOf(mirror), " cannot be used, and is tried again: ", error);
}

std::string MirrorNews::AtEnd(const v1::Mirror& mirror) {
  if (mirror.steps_waiting() == 0 && !mirror.has_error()) return "";
  return absl::StrCat(NameOf(mirror),
                      mirror.steps_waiting() == 0 ? " may lack steps"
                                                  : absl::StrCat(" lacks ", Counted(mirror.steps_waiting(), "step")),
                      "; the next coordinator of this root goes on copying",
                      mirror.has_error() ? absl::StrCat("; ", ErrorOf(mirror)) : "");
}

MirrorWatch::MirrorWatch(CommandContext context, std::string job) : context_(std::move(context)), job_(std::move(job)) {
  auto thread = StartThread("to watch the mirror", [this] { Run(); });
  if (thread.ok()) thread_ = *std::move(thread);
}

MirrorWatch::~MirrorWatch() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

std::optional<v1::Mirror> MirrorWatch::Ask() const {
  const auto client = CoordinatorClient::Connect(context_, job_);
  if (!client.ok()) return std::nullopt;
  v1::ListCheckpointsRequest request;
  request.set_job(job_);
  request.set_page_size(1);
  v1::ListCheckpointsResponse response;
  const absl::Status asked = (*client)->Call(&v1::CheckpointService::Stub::ListCheckpoints, request, &response,
                                             absl::ZeroDuration(), kPatience);
  // Without an address there is no mirror.
  return asked.ok() ? std::optional(response.mirror()) : std::nullopt;
}

void MirrorWatch::Run() {
  MirrorNews news;
  absl::Duration pause = kFirst;
  for (;;) {
    {
      MutexLock lock(mutex_);
      if (!ending_) changed_.WaitFor(mutex_, std::exchange(pause, kEach));
      if (ending_) return;
    }
    const std::optional<v1::Mirror> mirror = Ask();
    if (!mirror.has_value()) continue;
    if (mirror->address().empty()) return;
    std::string line = news.Take(*mirror);
    MutexLock lock(mutex_);
    if (!line.empty()) news_.push_back(std::move(line));
  }
}

std::vector<std::string> MirrorWatch::TakeNews() {
  MutexLock lock(mutex_);
  return std::exchange(news_, {});
}

std::string MirrorWatch::AtEnd() const {
  const std::optional<v1::Mirror> mirror = Ask();
  return mirror.has_value() && !mirror->address().empty() ? MirrorNews::AtEnd(*mirror) : "";
}

}  // namespace cairn::cli
