#include "common/rpc/token_source.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/file/retry.h"
#include "common/file/secret_file.h"
#include "common/process/log.h"
#include "common/process/task_queue.h"
#include "common/rpc/token.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

static_assert(kMaxTokens == kMaxServerTokens);

absl::Status CheckModeOfRootToken(ConfinedDirectory& root) {
  CAIRN_ASSIGN_OR_RETURN(const UniqueFd file, root.OpenFile(kRootTokenPath, O_RDONLY | O_NONBLOCK));
  struct stat info;
  if (StatOf(file.get(), info) == 0 && S_ISREG(info.st_mode) && (info.st_mode & (S_IRWXG | S_IRWXO)) == 0) {
    return absl::OkStatus();
  }
  return MakeError(Reason::kBadToken,
                   absl::StrCat(root.path(), "/", kRootTokenPath,
                                " can be read by others: chmod go= it, or, where the file system keeps no modes, give "
                                "a --token-file"),
                   {{"file", kRootTokenPath}});
}

bool IsSecret(const std::string& text) {
  return text.size() == kSecretLength &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isxdigit(c) != 0; });
}

absl::StatusOr<std::vector<std::string>> ReadRootTokens(ConfinedDirectory& root) {
  CAIRN_RETURN_IF_ERROR(CheckModeOfRootToken(root));
  CAIRN_ASSIGN_OR_RETURN(const std::string text, root.ReadFile(kRootTokenPath, 4096));
  std::vector<std::string> tokens = absl::StrSplit(text, '\n', absl::SkipWhitespace());
  for (std::string& token : tokens) absl::StripAsciiWhitespace(&token);
  if (tokens.empty() || tokens.size() > kMaxTokens || !std::all_of(tokens.begin(), tokens.end(), IsSecret)) {
    return MakeError(Reason::kBadToken,
                     absl::StrCat(root.path(), "/", kRootTokenPath, " holds something else than one or two tokens of ",
                                  kSecretLength, " hexadecimal digits, one a line"),
                     {{"file", kRootTokenPath},
                      {"next",
                       "Write a token that `openssl rand -hex 32` makes into it, or remove it and start the "
                       "coordinator again, which makes a new one."}});
  }
  return tokens;
}

absl::StatusOr<std::vector<std::string>> TokensOfRoot(const std::string& root) {
  CAIRN_ASSIGN_OR_RETURN(const auto storage, ConfinedDirectory::Open(root, false));
  return ReadRootTokens(*storage);
}

void AddEach(const std::vector<std::string>& more, std::vector<std::string>& tokens) {
  for (const std::string& token : more) {
    if (std::find(tokens.begin(), tokens.end(), token) == tokens.end()) tokens.push_back(token);
  }
}

}  // namespace

absl::StatusOr<std::vector<std::string>> MakeRootToken(ConfinedDirectory& root) {
  if (!root.Exists(kRootTokenPath)) {
    CAIRN_RETURN_IF_ERROR(ReadOrMakeSecret(root, kRootTokenPath).status());
  } else {
    // The process that made the file may have ended before its name was durable.
    CAIRN_RETURN_IF_ERROR(root.SettleDirectory(".cairn"));
  }
  return ReadRootTokens(root);
}

absl::StatusOr<TokenCandidates> FindTokens(const TokenPlaces& places, const TokenDirectory& directory) {
  TokenCandidates candidates;
  if (places.insecure) return candidates;
  if (!places.file.empty()) {
    CAIRN_ASSIGN_OR_RETURN(candidates.tokens, ReadTokenFile(places.file));
    return candidates;
  }
  TokenDirectory::Found found;
  if (!places.address.empty()) found = directory.Find(places.address);
  candidates.tokens = std::move(found.tokens);
  if (!places.root.empty()) {
    const auto of_root = TokensOfRoot(places.root);
    if (of_root.ok()) {
      AddEach(*of_root, candidates.tokens);
    } else if (HasReason(of_root.status(), Reason::kFileMissing)) {
      found.absent.push_back(absl::StrCat(places.root, "/", kRootTokenPath));
    } else {
      found.refused.push_back(std::string(of_root.status().message()));
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
  CAIRN_ASSIGN_OR_RETURN(TokenCandidates candidates, FindTokens(places));
  return std::shared_ptr<TokenSource>(new TokenSource(std::move(places), std::move(candidates)));
}

std::shared_ptr<TokenSource> TokenSource::Of(std::vector<std::string> tokens) {
  const bool insecure = tokens.empty();
  return std::shared_ptr<TokenSource>(
      new TokenSource({.insecure = insecure}, TokenCandidates{.tokens = std::move(tokens)}));
}

TokenSource::TokenSource(TokenPlaces places, TokenCandidates candidates) : places_(std::move(places)) {
  MutexLock lock(mutex_);
  Take(std::move(candidates));
}

void TokenSource::Take(TokenCandidates candidates) {
  candidates_ = std::move(candidates);
  const std::vector<std::string>& tokens = candidates_.tokens;
  coordinator_keys_ = tokens.empty() ? nullptr : PeerKeys::Of(tokens, ServerRole::kCoordinator);
  agent_keys_ = tokens.empty() ? nullptr : PeerKeys::Of(tokens, ServerRole::kAgent);
}

std::vector<std::string> TokenSource::tokens() const {
  MutexLock lock(mutex_);
  return candidates_.tokens;
}

std::shared_ptr<const PeerKeys> TokenSource::Keys(ServerRole role) const {
  MutexLock lock(mutex_);
  return role == ServerRole::kCoordinator ? coordinator_keys_ : agent_keys_;
}

bool TokenSource::Reload() {
  if (places_.insecure || (places_.file.empty() && places_.address.empty() && places_.root.empty())) return false;
  auto candidates = FindTokens(places_);
  MutexLock lock(mutex_);
  const absl::Status unreadable = candidates.status();
  if (std::exchange(told_, std::string(unreadable.message())) != unreadable.message() && !unreadable.ok()) {
    Log(LogLevel::kWarn, "token_unreadable", {{"error", unreadable}});
  }
  // A file may be missing for a moment while it is replaced.
  if (!candidates.ok() || (candidates->tokens.empty() && !candidates_.tokens.empty())) return false;
  const bool changed = candidates->tokens != candidates_.tokens;
  if (!changed) {
    candidates_.searched = std::move(candidates->searched);
  } else {
    Take(*std::move(candidates));
    Log(LogLevel::kInfo, "tokens_read", {{"tokens", candidates_.tokens.size()}});
  }
  return changed;
}

void TokenSource::ReloadSoon() {
  {
    MutexLock lock(mutex_);
    if (std::exchange(reloading_, true)) return;
  }
  const auto done = [self = shared_from_this()] {
    MutexLock lock(self->mutex_);
    self->reloading_ = false;
  };
  const absl::Status begun = RunInBackground([self = shared_from_this(), done] {
    self->Reload();
    done();
  });
  if (!begun.ok()) done();
}

absl::Status TokenSource::Explain(const absl::Status& refused) const {
  MutexLock lock(mutex_);
  return ExplainRefusal(refused, candidates_);
}

}  // namespace cairn
