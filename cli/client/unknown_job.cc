#include "cli/client/unknown_job.h"

#include "absl/strings/str_cat.h"
#include "common/base/shell_word.h"
#include "common/status/reason.h"

namespace cairn::cli {

absl::Status CheckJobIn(Storage& storage, const std::string& job) {
  if (storage.Exists(job)) return absl::OkStatus();
  return MakeError(
      Reason::kJobNotFound, absl::StrCat("there is no job ", job, " below ", storage.root()),
      {{"job", job},
       {"root", storage.root()},
       {"next", absl::StrCat("`cairn jobs --root ", ForShell(storage.root()), "` lists the jobs there.")}});
}

absl::Status CheckJobOf(CoordinatorClient& client, const std::string& job) {
  v1::GetJobRequest request;
  request.set_job(job);
  request.mutable_page()->set_max_ranks(1);
  v1::Job known;
  return client.Call(&v1::CheckpointService::Stub::GetJob, request, &known);
}

}  // namespace cairn::cli
