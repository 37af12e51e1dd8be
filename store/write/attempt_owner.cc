#include "store/write/attempt_owner.h"

#include "absl/strings/str_cat.h"
#include "common/file/uncached_file.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr char kName[] = ".owner";
constexpr uint64_t kMaxBytes = 4096;

std::string Hex(uint64_t nonce) { return absl::StrCat(absl::Hex(nonce, absl::kZeroPad16)); }

bool Names(std::string_view text, uint64_t nonce) { return text.substr(0, text.find('\n')) == Hex(nonce); }

}  // namespace

absl::StatusOr<PosixStorage::Put> MakeAttemptDirectory(PosixStorage& storage, std::string_view directory,
                                                       uint64_t nonce, std::string_view what) {
  return storage.MakeDirectoryExclusive(directory, kName, absl::StrCat(Hex(nonce), "\n", std::string(what), "\n"));
}

absl::Status CheckAttemptOwner(PosixStorage& storage, std::string_view directory, uint64_t nonce) {
  const std::string path = absl::StrCat(std::string(directory), "/", kName);
  const auto text = storage.ReadFile(path, kMaxBytes);
  const bool missing = HasReason(text.status(), Reason::kFileMissing);
  if (!text.ok() && !missing) return text.status();
  if (!missing) {
    if (Names(*text, nonce)) return absl::OkStatus();
    // Bits may have flipped on their way here, so it is read once more.
    CAIRN_ASSIGN_OR_RETURN(const std::string again, ReadUncached(storage, path, kMaxBytes));
    if (Names(again, nonce)) return absl::OkStatus();
    if (again != *text) return GaveOtherBytes(absl::StrCat(storage.root(), "/", path), "whose attempt it is");
  }
  return MakeError(
      Reason::kRootMismatch,
      absl::StrCat(storage.root(), "/", path,
                   missing ? " is not there: below this root is other storage than below the coordinator's, "
                             "or another coordinator has ended the attempt"
                           : " holds another number: the attempt is another coordinator's"),
      {{"root", storage.root()}, {"file", absl::StrCat(storage.root(), "/", path)}});
}

}  // namespace cairn
