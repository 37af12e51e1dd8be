// The token of the page of `cairn serve`, and the file that holds it.
#ifndef CAIRN_CLI_WEB_PAGE_TOKEN_H_
#define CAIRN_CLI_WEB_PAGE_TOKEN_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cli/local/run_directory.h"

namespace cairn::cli {

// While it lives, no other `cairn serve` of this user has the page at that address.
class PageToken {
 public:
  // Returns the token for the page at `listen` (host:port). `given` names a file of the user's own, whose first line is
  // the token; it is only read.
  //
  // If `given` is empty, the token is in this user's RunDirectory for that port, where only this user can read it. It
  // stays there, so that a page which is open in a browser goes on after a restart. With port 0 each start has a new
  // port, so the token is a new one and its file is removed at the end.
  // UNAUTHENTICATED (BAD_TOKEN): `given` cannot be used. FAILED_PRECONDITION (SOCKET_DIRECTORY): another `cairn serve`
  // has the page at this port, or the directory cannot be used. Else the reasons of WriteAtomically.
  static absl::StatusOr<std::unique_ptr<PageToken>> Open(const std::string& listen, const std::string& given);
  ~PageToken();
  PageToken(const PageToken&) = delete;
  PageToken& operator=(const PageToken&) = delete;

  const std::string& token() const { return token_; }
  const std::string& file() const { return file_; }

 private:
  PageToken() = default;

  std::string token_;
  std::string file_;
  bool removed_at_end_ = false;
  std::unique_ptr<RunDirectory> directory_;  // null if the user gave the file
};

}  // namespace cairn::cli

#endif  // CAIRN_CLI_WEB_PAGE_TOKEN_H_
