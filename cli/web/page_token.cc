#include "cli/web/page_token.h"

#include <sys/types.h>
#include <unistd.h>

#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random_id.h"
#include "common/file/atomic_write.h"
#include "common/rpc/token.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn::cli {

absl::StatusOr<std::unique_ptr<PageToken>> PageToken::Open(const std::string& listen, const std::string& given) {
  std::unique_ptr<PageToken> opened(new PageToken);
  if (!given.empty()) {
    opened->file_ = given;
    CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> tokens, ReadTokenFile(given));
    opened->token_ = tokens.front();
    return opened;
  }
  const std::string port = listen.substr(listen.rfind(':') + 1);
  opened->removed_at_end_ = port == "0";
  const std::string path =
      RunDirectory::PathOf(absl::StrCat("serve-", port == "0" ? absl::StrCat("process-", getpid()) : port));
  if (const std::optional<pid_t> holder = RunDirectory::HolderOf(path); holder.has_value()) {
    return MakeError(Reason::kSocketDirectory,
                     absl::StrCat("another `cairn serve`, process ", *holder, ", has the page at ", listen),
                     {{"next", "Open that page, or give this one another --listen, for example 127.0.0.1:0."}});
  }
  CAIRN_ASSIGN_OR_RETURN(opened->directory_, RunDirectory::Take(path));
  opened->file_ = opened->directory_->path() + "/page-token";
  if (const auto kept = ReadTokenFile(opened->file_); kept.ok()) {
    opened->token_ = kept->front();
    return opened;
  }
  opened->token_ = RandomToken();
  CAIRN_RETURN_IF_ERROR(
      WriteAtomically(opened->file_, opened->token_ + "\n",
                      {.replace = true, .durable = AtomicWriteOptions::Durable::kNothing, .mode = 0600})
          .put.status());
  return opened;
}

PageToken::~PageToken() {
  if (removed_at_end_ && !file_.empty()) unlink(file_.c_str());
}

}  // namespace cairn::cli
