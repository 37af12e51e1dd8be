#include "common/rpc/token_source.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/file/retry.h"
#include "common/rpc/token.h"
#include "common/status/reason.h"
#include "common/status/status.h"
#include "common/storage/secret_file.h"

namespace cairn {
namespace {

absl::Status CheckModeOfRootToken(PosixStorage& storage) {
  CAIRN_ASSIGN_OR_RETURN(const UniqueFd file, storage.OpenFile(kRootTokenPath, O_RDONLY | O_NONBLOCK));
  struct stat info;
  if (StatOf(file.get(), info) == 0 && S_ISREG(info.st_mode) && (info.st_mode & (S_IRWXG | S_IRWXO)) == 0) {
    return absl::OkStatus();
  }
  return MakeError(Reason::kBadToken,
                   absl::StrCat(storage.root(), "/", kRootTokenPath,
                                " can be read by others: chmod go= it, or, where the file system keeps no modes, give "
                                "a --token-file"),
                   {{"file", kRootTokenPath}});
}

absl::StatusOr<std::string> TokenOfRoot(const std::string& root) {
  CAIRN_ASSIGN_OR_RETURN(const auto storage, PosixStorage::Open(root, false));
  CAIRN_RETURN_IF_ERROR(CheckModeOfRootToken(*storage));
  return ReadSecret(*storage, kRootTokenPath);
}

}  // namespace

absl::StatusOr<std::string> MakeRootToken(PosixStorage& storage) {
  CAIRN_ASSIGN_OR_RETURN(std::string token, ReadOrMakeSecret(storage, kRootTokenPath));
  CAIRN_RETURN_IF_ERROR(CheckModeOfRootToken(storage));
  return token;
}

absl::StatusOr<TokenCandidates> FindTokens(const TokenPlaces& places, const TokenDirectory& directory) {
  TokenCandidates candidates;
  if (places.insecure) return candidates;
  if (!places.file.empty()) {
    CAIRN_ASSIGN_OR_RETURN(std::string token, ReadTokenFile(places.file));
    candidates.tokens.push_back(std::move(token));
    return candidates;
  }
  TokenDirectory::Found found = directory.Find(places.address);
  candidates.tokens = std::move(found.tokens);
  if (!places.root.empty()) {
    const auto token = TokenOfRoot(places.root);
    if (HasReason(token.status(), Reason::kFileMissing)) {
      found.absent.push_back(absl::StrCat(places.root, "/", kRootTokenPath));
    } else if (!token.ok()) {
      found.refused.push_back(std::string(token.status().message()));
    } else if (std::find(candidates.tokens.begin(), candidates.tokens.end(), *token) == candidates.tokens.end()) {
      candidates.tokens.push_back(*token);
    }
  }
  if (!found.absent.empty()) found.refused.push_back(absl::StrCat("nothing is at ", absl::StrJoin(found.absent, ", ")));
  candidates.searched = absl::StrJoin(found.refused, "; ");
  return candidates;
}

absl::Status ExplainRefusal(const absl::Status& refused, const TokenCandidates& candidates) {
  if (candidates.searched.empty()) return refused;
  const auto metadata = MetadataOf(refused);
  return MakeError(
      Reason::kBadToken,
      absl::StrCat(refused.message(), "; without --token-file ",
                   candidates.tokens.empty() ? "none was found" : "only wrong ones were found",
                   " (the one that a coordinator makes is <its root>/", kRootTokenPath, "): ", candidates.searched),
      {metadata.begin(), metadata.end()});
}

absl::StatusOr<std::shared_ptr<TokenSource>> TokenSource::Open(TokenPlaces places) {
  CAIRN_ASSIGN_OR_RETURN(const TokenCandidates candidates, FindTokens(places));
  std::string first = candidates.tokens.empty() ? "" : candidates.tokens.front();
  return std::shared_ptr<TokenSource>(new TokenSource(std::move(places), std::move(first)));
}

std::string TokenSource::Current() const {
  MutexLock lock(mutex_);
  return current_;
}

absl::Status TokenSource::Refused(const std::string& token, const absl::Status& refused) {
  const auto candidates = FindTokens(places_);
  if (!candidates.ok()) return candidates.status();
  const std::vector<std::string>& tokens = candidates->tokens;
  MutexLock lock(mutex_);
  if (current_ == token && !tokens.empty()) {
    const auto at = std::find(tokens.begin(), tokens.end(), token);
    current_ = at == tokens.end() || at + 1 == tokens.end() ? tokens.front() : *(at + 1);
  }
  return ExplainRefusal(refused, *candidates);
}

}  // namespace cairn
