#include "store/s3/s3_root_lock.h"

#include <unistd.h>

#include <algorithm>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/resources/thread.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr char kEpochs[] = ".cairn/epochs/";
constexpr char kLeasePath[] = ".cairn/lease";
constexpr char kAddressPath[] = ".cairn/address";
// The first word of a record says what the root may hold.
constexpr char kFormat[] = "epoch/2";
constexpr uint64_t kMaxBytes = 4096;
constexpr absl::Duration kRetry = absl::Milliseconds(500);

// All paths have the same length, so the store lists them in the order of their epochs.
std::string EpochPath(uint64_t epoch) { return absl::StrFormat("%s%020u", kEpochs, epoch); }

std::string HostName() {
  char name[128] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown";
}

std::vector<std::string> WordsOf(const std::string& text) {
  return absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
}

// Returns the highest epoch that was taken, at least `from`; 0 if there is none.
absl::StatusOr<uint64_t> NewestEpoch(S3Client& client, uint64_t from) {
  const std::string& prefix = client.address().prefix;
  CAIRN_ASSIGN_OR_RETURN(const auto listed, client.List(absl::StrCat(prefix, kEpochs), /*by_directory=*/false,
                                                        from == 0 ? "" : absl::StrCat(prefix, EpochPath(from - 1))));
  uint64_t newest = 0;
  for (const S3Client::Listed& one : listed) {
    uint64_t epoch = 0;
    if (absl::SimpleAtoi(one.name.substr(prefix.size() + sizeof(kEpochs) - 1), &epoch))
      newest = std::max(newest, epoch);
  }
  return newest;
}

// Says whether the holder of an epoch still has it: it was taken, or its lease was written, not long ago.
absl::StatusOr<bool> IsAlive(Storage& storage, S3Client& client, uint64_t epoch) {
  const std::string& prefix = client.address().prefix;
  auto renewed = client.Head(absl::StrCat(prefix, kLeasePath));
  if (!renewed.ok() && !HasReason(renewed.status(), Reason::kFileMissing)) return renewed.status();
  // Its words are the epoch, and whether that was given back.
  std::vector<std::string> words;
  if (renewed.ok()) {
    const auto text = storage.Read(kLeasePath, kMaxBytes);
    if (HasReason(text.status(), Reason::kBadForeignFile)) return true;  // it was written at this moment
    CAIRN_RETURN_IF_ERROR(text.status());
    words = WordsOf(*text);
  }
  // A holder takes its epoch first. Until it has written the lease, there is an earlier one's.
  if (words.size() != 2 || words[0] != absl::StrCat(epoch)) {
    renewed = client.Head(absl::StrCat(prefix, EpochPath(epoch)));
    if (HasReason(renewed.status(), Reason::kFileMissing)) return false;
    CAIRN_RETURN_IF_ERROR(renewed.status());
  } else if (words[1] != "held") {
    return false;
  }
  return renewed->now - renewed->modified <= S3RootLock::kLease;
}

absl::StatusOr<RootHolder> HolderIn(Storage& storage, uint64_t epoch) {
  CAIRN_ASSIGN_OR_RETURN(const std::string record, storage.Read(EpochPath(epoch), kMaxBytes));
  const std::vector<std::string> words = WordsOf(record);
  if (!words.empty() && words[0] != kFormat && words[0].starts_with("epoch/")) {
    return MakeError(Reason::kFormatTooNew,
                     absl::StrCat(storage.root(), " holds what a later version of Cairn has put there (",
                                  storage.FullPath(EpochPath(epoch)), " begins with ", words[0], ")"),
                     {{"file", storage.FullPath(EpochPath(epoch))}, {"root", storage.root()}});
  }
  if (words.size() < 4) return RootHolder{"an unknown process", "", ""};
  RootHolder holder = {absl::StrCat("process ", words[2], " on ", words[3], " (epoch ", epoch, ")"), words[3], ""};
  const std::vector<std::string> told = WordsOf(storage.Read(kAddressPath, kMaxBytes).value_or(""));
  if (told.size() == 2 && told[0] == absl::StrCat(epoch)) holder.address = told[1];
  return holder;
}

absl::Status InUse(const std::string& root, const RootHolder& holder) {
  ErrorMetadata metadata = {{"root", root}, {"holder", holder.text}};
  std::string where;
  if (!holder.address.empty()) {
    where = absl::StrCat(" at ", holder.address);
    metadata.emplace_back("address", holder.address);
  }
  return MakeError(Reason::kRootInUse, absl::StrCat(root, " is served by ", holder.text, where), metadata);
}

// INVALID_ARGUMENT (BAD_REQUEST): the root lies within another one, which would take its files for those of a job.
absl::Status CheckNotWithin(const std::string& root, S3Client& client) {
  const std::string& prefix = client.address().prefix;
  for (size_t slash = prefix.rfind('/'); slash != prefix.npos && slash > 0;) {
    slash = prefix.rfind('/', slash - 1);
    const std::string above = slash == prefix.npos ? "" : prefix.substr(0, slash + 1);
    CAIRN_ASSIGN_OR_RETURN(const auto epochs, client.List(absl::StrCat(above, kEpochs), /*by_directory=*/false, "", 1));
    if (epochs.empty()) continue;
    const std::string outer = absl::StrCat("s3://", client.address().bucket, "/", above);
    return MakeError(Reason::kBadRequest, absl::StrCat(root, " lies within the root ", outer), {{"root", outer}});
  }
  return absl::OkStatus();
}

std::string LeaseText(uint64_t epoch, bool held) { return absl::StrCat(epoch, held ? " held\n" : " given-back\n"); }

}  // namespace

absl::StatusOr<std::unique_ptr<S3RootLock>> S3RootLock::Acquire(Storage& storage, S3Client& client,
                                                                absl::Duration patience, const Clock& clock,
                                                                const Storage::Waiting& waiting) {
  CAIRN_RETURN_IF_ERROR(CheckNotWithin(storage.root(), client));
  const absl::Time deadline = clock.SteadyNow() + patience;
  bool told = false;
  for (;;) {
    CAIRN_ASSIGN_OR_RETURN(const uint64_t newest, NewestEpoch(client, 0));
    if (newest != 0) {
      CAIRN_ASSIGN_OR_RETURN(const RootHolder holder, HolderIn(storage, newest));
      CAIRN_ASSIGN_OR_RETURN(const bool alive, IsAlive(storage, client, newest));
      if (alive) {
        if (clock.SteadyNow() >= deadline) return InUse(storage.root(), holder);
        if (!told) waiting(holder.text);
        told = true;
        std::this_thread::sleep_for(absl::ToChronoMilliseconds(kRetry));
        continue;
      }
    }
    const uint64_t epoch = newest + 1;
    const std::string record = absl::StrFormat("%s %u %d %s\n", kFormat, epoch, getpid(), HostName());
    absl::Time began;
    const PutResult put = client.PutObject(absl::StrCat(client.address().prefix, EpochPath(epoch)), record,
                                           /*if_absent=*/true, &began);
    CAIRN_RETURN_IF_ERROR(put.put.status());
    if (*put.put == Put::kExists) continue;  // another one was faster
    std::unique_ptr<S3RootLock> lock(new S3RootLock(storage, client, epoch, began));
    CAIRN_RETURN_IF_ERROR(storage.PutReplacing(kLeasePath, LeaseText(epoch, true)));
    // Records below the newest one are removed, so a slow process could have taken a number anew.
    CAIRN_RETURN_IF_ERROR(lock->Check());
    CAIRN_ASSIGN_OR_RETURN(lock->renewal_, StartThread("to hold the root", [lock = lock.get()] { lock->Renew(); }));
    if (epoch > 1) storage.RemoveAll(EpochPath(epoch - 1)).IgnoreError();
    return lock;
  }
}

absl::StatusOr<std::optional<RootHolder>> S3RootLock::HolderOf(Storage& storage, S3Client& client) {
  CAIRN_ASSIGN_OR_RETURN(const uint64_t newest, NewestEpoch(client, 0));
  if (newest == 0) return std::nullopt;
  CAIRN_ASSIGN_OR_RETURN(const bool alive, IsAlive(storage, client, newest));
  if (!alive) return std::nullopt;
  return HolderIn(storage, newest);
}

S3RootLock::~S3RootLock() {
  if (!renewal_.joinable()) return;
  {
    MutexLock lock(mutex_);
    ending_ = true;
    changed_.NotifyAll();
  }
  renewal_.join();
  // Else the next one would wait for the lease to end. Nothing is lost if this fails.
  if (Look().ok()) storage_.PutReplacing(kLeasePath, LeaseText(epoch_, false)).IgnoreError();
}

void S3RootLock::Renew() {
  for (;;) {
    {
      MutexLock lock(mutex_);
      if (!ending_) changed_.WaitFor(mutex_, kRenewal);
      if (ending_) return;
    }
    // Whoever has the root now must not find this one's lease.
    if (Look().ok()) storage_.PutReplacing(kLeasePath, LeaseText(epoch_, true)).IgnoreError();
  }
}

absl::Status S3RootLock::TellAddress(const std::string& address) const {
  return storage_.PutReplacing(kAddressPath, absl::StrCat(epoch_, " ", address, "\n"));
}

absl::Status S3RootLock::Look() const {
  CAIRN_ASSIGN_OR_RETURN(const uint64_t newest, NewestEpoch(client_, epoch_));
  if (newest == epoch_) return absl::OkStatus();
  const std::string holder =
      newest == 0 ? "" : HolderIn(storage_, newest).value_or(RootHolder{"an unknown process", "", ""}).text;
  return MakeError(
      Reason::kRootInUse,
      newest == 0 ? absl::StrCat(storage_.FullPath(EpochPath(epoch_)), " is gone: nobody knows who serves the root")
                  : absl::StrCat(storage_.root(), " is served by ", holder,
                                 " now: this process did not write its lease for ", absl::FormatDuration(kLease)),
      {{"root", storage_.root()}, {"holder", holder}});
}

}  // namespace cairn
