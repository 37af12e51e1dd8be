#include "store/write/attempt_owner.h"

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr char kName[] = ".owner";
constexpr uint64_t kMaxBytes = 4096;

std::string Hex(uint64_t nonce) { return absl::StrCat(absl::Hex(nonce, absl::kZeroPad16)); }

bool Names(std::string_view text, uint64_t nonce) { return text.substr(0, text.find('\n')) == Hex(nonce); }

}  // namespace

absl::StatusOr<Put> MakeAttemptDirectory(Storage& storage, std::string_view directory, uint64_t nonce,
                                         std::string_view what) {
  return storage.ClaimDirectory(directory, kName, absl::StrCat(Hex(nonce), "\n", std::string(what), "\n"));
}

absl::Status CheckAttemptOwner(Storage& storage, std::string_view directory, uint64_t nonce) {
  const std::string path = absl::StrCat(std::string(directory), "/", kName);
  const auto text = storage.Read(path, kMaxBytes);
  const bool missing = HasReason(text.status(), Reason::kFileMissing);
  if (!text.ok() && !missing && !HasReason(text.status(), Reason::kFileTruncated)) return text.status();
  if (!missing) {
    if (text.ok() && Names(*text, nonce)) return absl::OkStatus();
    // Bits may have flipped on their way here, so it is read once more.
    CAIRN_ASSIGN_OR_RETURN(const std::string again, storage.Read(path, kMaxBytes, Cache::kBypass));
    if (Names(again, nonce)) return absl::OkStatus();
    if (again != text.value_or("")) return GaveOtherBytes(storage.FullPath(path), "whose attempt it is");
  }
  return MakeError(
      Reason::kRootMismatch,
      absl::StrCat(storage.FullPath(path),
                   missing ? " is not there: below this root is other storage than below the coordinator's, "
                             "or another coordinator has ended the attempt"
                           : " holds another number: the attempt is another coordinator's"),
      {{"root", storage.root()}, {"file", storage.FullPath(path)}});
}

}  // namespace cairn
